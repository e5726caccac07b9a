"""Plain options as dataclasses, and the C++ objects that they become."""
import dataclasses

from divvy import _divvy


class Option:
    """A plain value: its fields are the arguments of the C++ class with the same name."""

    def _native(self):
        fields = [getattr(self, field.name) for field in dataclasses.fields(self)]
        try:
            return getattr(_divvy, type(self).__name__)(*map(native, fields))
        except TypeError:
            raise TypeError("%r: a field has the wrong type" % (self,)) from None


def native(value):
    """The C++ object of an option; any other value as it is."""
    return value._native() if hasattr(value, "_native") else value
