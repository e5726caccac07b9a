"""Plain options as dataclasses, and the C++ objects that they become; and checks of arguments."""
import dataclasses
import operator
import typing

from divvy import _divvy


class Option:
    """A plain value: its fields are the arguments of the C++ class with the same name."""

    def _native(self):
        fields = [getattr(self, field.name) for field in dataclasses.fields(self)]
        try:
            return getattr(_divvy, type(self).__name__)(*map(native, fields))
        except TypeError:
            raise TypeError("%r: a field has the wrong type" % (self,)) from None


def option(value, kinds, what, example):
    """The C++ object of an option. TypeError: it is of none of these classes.

    kinds: a Union of classes. what: the name of the argument, for the error.
    """
    if isinstance(value, typing.get_args(kinds)):
        return native(value)
    if any(value is kind for kind in typing.get_args(kinds)):
        raise TypeError("%s is the class %s: make one, as in divvy.%s" %
                        (what, value.__name__, example))
    raise TypeError("%s is %r: wanted one of Divvy's, such as divvy.%s" % (what, value, example))


def text(value, what):
    """`value`. TypeError: it is no text."""
    if isinstance(value, str):
        return value
    raise TypeError("%s is %r: wanted a text" % (what, value))


def whole(value, what, least=None):
    """`value` as an int. TypeError: it is no whole number. ValueError: it is below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError("%s is %r: wanted a whole number" % (what, value))
    if least is not None and number < least:
        raise ValueError("%s is %d: wanted at least %d" % (what, number, least))
    return number


def native(value):
    """The C++ object of an option; any other value as it is."""
    return value._native() if hasattr(value, "_native") else value
