"""A torch.nn.Module whose parameters and buffers live on the parameter servers."""
import torch

import divvy
from divvy import _divvy
from divvy._native import text
from divvy._variables import Variable, _Scalable, checked_optimizer
from divvy.torch._steps import LOCK, check_in_program, join
from divvy.torch._tensors import Lent, float_array, over, own_array, tensors

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# What a variable without an optimizer can be.
_OTHERS = (torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)


def _kept_as(dtype, what):
    """The torch.dtype of the variable for a tensor of this dtype: halves are kept as float32."""
    if dtype in _FLOATS:
        return torch.float32
    if dtype in _OTHERS:
        return dtype
    raise TypeError("%s is %s, which no variable holds: wanted one of %s" %
                    tuple(str(one).replace("torch.", "") for one in
                          (what, dtype, ", ".join(map(str, _FLOATS + _OTHERS)))))


def _declare(name, what, value, **options):
    """A variable with the initial value of a tensor."""
    if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
        raise ValueError("%s has no shape yet: give the module one batch before dt.Module" % what)
    if value.device.type == "meta":
        raise ValueError("%s is on the meta device, and has no values: make it on the CPU" % what)
    dtype = _kept_as(value.dtype, what)
    return Variable(name, tuple(value.shape), dtype=str(dtype).replace("torch.", ""),
                    initializer=own_array(value, dtype), **options)


def _copy_if_other(tensor, value):
    """Copies a value. autograd takes each copy for a change, also that of an equal value."""
    value = value.to(tensor.dtype)
    if not torch.equal(tensor.cpu(), value):
        tensor.copy_(value)


class _Leaf:
    """A parameter and its variable."""

    def __init__(self, module, name, owner, key, parameter, options):
        self.what = "parameter %r of dt.Module %r" % (name, module)
        self.owner, self.key, self.parameter = owner, key, parameter
        self.is_trainable = parameter.requires_grad
        if self.is_trainable and parameter.dtype not in _FLOATS:
            raise TypeError("%s is %s, and optimizers work in float32: call .float() on the "
                            "module, or requires_grad_(False) on the parameter" %
                            (self.what, str(parameter.dtype).replace("torch.", "")))
        if not self.is_trainable:
            options = {}
        elif options["optimizer"] is None:
            raise ValueError("%s wants a gradient, and there is no optimizer: give "
                             "optimizer=divvy.Adam(1e-3), or call requires_grad_(False)" %
                             self.what)
        owned_by = getattr(parameter, "_divvy_variable", None)
        if owned_by is not None:
            raise ValueError("%s is variable %r already: share it inside one dt.Module" %
                             (self.what, owned_by))
        self.variable = _declare("%s/%s" % (module, name), self.what, parameter, **options)
        parameter._divvy_variable = self.variable.name
        self._version = None

    def load(self, array):
        """Takes the value of the variable, for a step."""
        self.parameter.grad = None
        self.parameter.copy_(over(array))
        self._version = self.parameter._version

    def refresh(self, array):
        """Takes the value of the variable, in main."""
        _copy_if_other(self.parameter, over(array))

    def check_unchanged(self):
        """RuntimeError: the step changed what the variable's optimizer should change."""
        if self.owner._parameters.get(self.key) is not self.parameter:
            raise RuntimeError("%s was replaced: a step cannot give the module other parameters" %
                               self.what)
        if self.parameter._version != self._version:
            raise RuntimeError(
                "%s was changed in the step, which has no effect on the parameter servers: use no "
                "torch.optim, since optimizer=... of dt.Module applies the gradients there" %
                self.what)

    def stage(self, step, allow_nonfinite):
        """Gives the gradient to the variable's optimizer, if backward() left one."""
        gradient = self.parameter.grad
        if gradient is None:
            return
        if step.read_only:
            raise RuntimeError("%s has a gradient, and step %s is read-only: leave out "
                               "read_only=True" % (self.what, step.name))
        if not self.is_trainable:
            raise RuntimeError("%s was frozen when dt.Module declared it, so it has no optimizer "
                               "for its gradient: call requires_grad_() before" % self.what)
        spec = self.variable._spec
        if not gradient.is_sparse:
            _divvy.apply_gradient(spec, float_array(gradient), allow_nonfinite, True)
            return
        if gradient.sparse_dim() != 1:
            raise RuntimeError("%s has a sparse gradient of elements: wanted one of rows, as "
                               "torch.nn.Embedding(sparse=True) makes" % self.what)
        gradient = gradient.coalesce()
        _divvy.apply_row_gradients(spec, gradient.indices()[0].cpu().numpy(),
                                   float_array(gradient.values()), allow_nonfinite, True)


class _Buffer:
    """A buffer and its variable."""

    def __init__(self, module, name, owner, key):
        self.what = "buffer %r of dt.Module %r" % (name, module)
        self.owner, self.key = owner, key
        value = owner._buffers[key]
        self.dtype = _kept_as(value.dtype, self.what)
        self.variable = _declare(
            "%s/%s" % (module, name), self.what, value,
            aggregation="mean" if self.dtype.is_floating_point else "only_first_replica")
        self._pulled = None

    def load(self, array):
        """Takes the value of the variable, for a step."""
        self._pulled = over(array)
        self.owner._buffers[self.key].copy_(self._pulled)

    def refresh(self, array):
        """Takes the value of the variable, in main."""
        _copy_if_other(self.owner._buffers[self.key], over(array))

    def stage(self):
        """Assigns the variable if the step changed the buffer. batch_norm does not count its
        changes in the tensor's version, so the values are compared."""
        value = self.owner._buffers[self.key]
        if value is None or value.shape != self._pulled.shape:
            raise RuntimeError("%s has another shape than at its declaration" % self.what)
        now = own_array(value, self.dtype)
        if not torch.equal(torch.from_numpy(now), self._pulled):
            self.variable.assign(now)

    def end(self):
        self._pulled = None


class _JoinHook:
    """Gives the torch module itself the newest values where a step or main calls it."""

    def __init__(self, module):
        self._module = module

    def __call__(self, *unused):
        self._module._refresh()

    def __reduce__(self):
        # A copy of the torch module is a module of its own.
        return (_JoinsNothing, ())


class _StateHook(_JoinHook):
    """The same for the state_dict() of the torch module, which it gets with references."""

    def __call__(self, unused_module, state, *unused):
        self._module._refresh(state)


class _JoinsNothing:

    def __call__(self, *unused):
        pass


def _named_leaves(module):
    """(name, owner, key, parameter), each parameter once, as named_parameters()."""
    seen = set()
    for prefix, owner in module.named_modules():
        for key, parameter in owner._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield (prefix + "." if prefix else "") + key, owner, key, parameter


def _named_buffers(module):
    """(name, owner, key) of the buffers that belong to the module's state, each once."""
    seen = set()
    for prefix, owner in module.named_modules():
        for key, value in owner._buffers.items():
            if value is None or key in owner._non_persistent_buffers_set or id(value) in seen:
                continue
            seen.add(id(value))
            yield (prefix + "." if prefix else "") + key, owner, key


class Module(_Scalable):
    """A torch.nn.Module on the parameter servers. Declare it at module level, in every process.

        model = dt.Module("net", Net(), optimizer=divvy.Adam(1e-3))

    name: of the job's variables, "net/fc1.weight" and so on. module: its present values are the
    initial ones, taken on the coordinator. optimizer: of the parameters that want gradients.
    wire: as divvy.Variable. allow_nonfinite: whether NaN and infinity may be applied.

    IN A STEP the first use pulls all parameters and buffers into the module's own storage. When the
    step's function returns, what .grad holds is staged; a parameter without one is not used.
    Several calls of backward() add up, and torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    and divvy.clip_by_global_norm([model, ids], 1.0) work before the return. A step begins without
    gradients, in the mode (train or eval) that the module had at its declaration; a read-only step
    begins in eval mode. float16 and bfloat16 parameters are kept as float32 on the parameter
    servers, where the optimizer works.

    BUFFERS, such as the statistics of BatchNorm: each worker normalizes by its own batch. A step
    that changes a buffer assigns it when it ends, the mean over the worker's replicas; of workers
    that run at the same time, the last one's value stays. Buffers with persistent=False stay in the
    process.

    IN MAIN a call computes in eval mode and without gradients, with the newest values. The torch
    module itself gets them when it is called, by its state_dict() and by `module`. In one process
    the steps use the same module, so call it only after c.join(). torch.jit.trace wants
    `model.module`, which gets the values before the trace begins.

    ValueError or TypeError, naming the parameter: one that wants gradients and no optimizer is
    given, one without a shape, one that another dt.Module has, or one that is not float32, float16
    or bfloat16.
    """

    def __init__(self, name, module, *, optimizer=None, wire="exact", allow_nonfinite=False):
        if not isinstance(module, torch.nn.Module):
            raise TypeError("dt.Module %r: %r is no torch.nn.Module" % (name, module))
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError("dt.Module %r: a %s is TorchScript, whose values cannot be exchanged: "
                            "give the module that torch.jit.trace or torch.jit.script got" %
                            (name, type(module).__name__))
        self.name = text(name, "the name of a dt.Module, its first argument,")
        checked_optimizer(optimizer, "dt.Module %r" % name)
        self._module = module
        self._allow_nonfinite = allow_nonfinite
        options = {"optimizer": optimizer, "wire": wire}
        self._leaves = [_Leaf(name, *leaf, options) for leaf in _named_leaves(module)]
        self._buffers = [_Buffer(name, *buffer) for buffer in _named_buffers(module)]
        self._modes = [(one, one.training) for one in module.modules()]
        self._calling = False  # in main, which has loaded the values
        module.register_forward_pre_hook(_JoinHook(self))
        module._register_state_dict_hook(_StateHook(self))

    def __call__(self, *args, **kwargs):
        """The module's forward; arrays among the arguments become tensors."""
        check_in_program(repr(self))
        what = "the argument of dt.Module %r" % self.name
        if join(self) is not None:
            return self._module(*tensors(args, what), **tensors(kwargs, what))
        lent = Lent()
        args, kwargs = tensors(args, what, lent), tensors(kwargs, what, lent)
        with LOCK, torch.no_grad():
            self._refresh_all()
            self._set_modes(evaluates=True)
            self._calling = True
            try:
                result = self._module(*args, **kwargs)
            finally:
                self._calling = False
                self._set_modes(evaluates=False)
        lent.stage()
        return result

    @property
    def module(self):
        """The torch.nn.Module, with the values of the step, or in main with the newest ones:
        model.module.encode(x)."""
        self._refresh()
        return self._module

    def train(self, mode=True):
        """Sets the mode for the rest of the step. RuntimeError: outside of a step."""
        if join(self) is None:
            raise RuntimeError("dt.Module %r: train() and eval() belong into steps. Each step "
                               "begins in the mode of the declaration, and main computes in eval "
                               "mode" % self.name)
        self._module.train(mode)
        return self

    def eval(self):
        """train(False)."""
        return self.train(False)

    def parameters(self):
        """The parameters, each once."""
        return self.module.parameters()

    def named_parameters(self):
        """(name, parameter), each once."""
        return self.module.named_parameters()

    def state_dict(self):
        """Copies of all parameters and buffers, as torch.save takes them. In steps and in main."""
        check_in_program(repr(self))
        with LOCK:
            state = dict(self._module.state_dict())  # the hook of main has made copies
            if not _divvy.in_step():
                return state
            return {key: value.detach().clone() if isinstance(value, torch.Tensor) else value
                    for key, value in state.items()}

    def load_state_dict(self, state):
        """Assigns all parameters and buffers, in main. Its errors are PyTorch's. RuntimeError: in a
        step."""
        if _divvy.in_step():
            raise RuntimeError("dt.Module %r: load_state_dict belongs into main" % self.name)
        check_in_program(repr(self))
        with LOCK:
            self._refresh_all()  # what is wrong outside of main, and what `state` leaves out
            self._module.load_state_dict(state)
            for leaf in self._leaves:
                leaf.variable.assign(own_array(leaf.parameter, _kept_as(leaf.parameter.dtype, "")))
            for buffer in self._buffers:
                buffer.variable.assign(own_array(buffer.owner._buffers[buffer.key], buffer.dtype))

    def __repr__(self):
        return "dt.Module(%r, %s)" % (self.name, type(self._module).__name__)

    def __reduce__(self):
        raise TypeError("%r cannot be pickled or copied: it stands for values on the parameter "
                        "servers. state_dict() has the values" % self)

    def _refresh(self, state=None):
        """The torch module is used: it gets the values of the step, or in main the newest ones.

        state: its state_dict(), which has copies in main, so that no step changes them.
        """
        if torch.jit.is_tracing() and not _divvy.in_step():
            return  # the copies would become a part of the trace
        if join(self) is None and not self._calling and _divvy.in_program():
            with LOCK:
                self._refresh_all()
                for key, value in (state or {}).items():
                    if isinstance(value, torch.Tensor) and not value.requires_grad:
                        state[key] = value.clone()

    def _pulled(self):
        """(leaf or buffer, its value) of all, with one message to each parameter server."""
        parts = self._leaves + self._buffers
        return zip(parts, divvy.read(*[part.variable for part in parts]))

    def _refresh_all(self):
        with torch.no_grad():
            for part, array in self._pulled():
                part.refresh(array)

    # ---- a step's life ----

    def _load(self):
        with torch.no_grad():
            for part, array in self._pulled():
                part.load(array)

    def _set_modes(self, evaluates):
        for one, trains in self._modes:
            one.training = trains and not evaluates

    def _begin(self, step):
        self._set_modes(evaluates=step.read_only)
        self._load()

    def _stage(self, step):
        for leaf in self._leaves:
            leaf.check_unchanged()
            leaf.stage(step, self._allow_nonfinite)
        if not step.read_only:
            for buffer in self._buffers:
                buffer.stage()

    def _end(self):
        for leaf in self._leaves:
            leaf.parameter.grad = None
        for buffer in self._buffers:
            buffer.end()
        self._set_modes(evaluates=False)

    # ---- clip_by_global_norm ----

    def _gradients(self):
        return [leaf.parameter.grad for leaf in self._leaves if leaf.parameter.grad is not None]

    def _sum_of_squares(self):
        squares = 0.0
        for gradient in self._gradients():
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            squares += float(values.double().pow(2).sum())
        return squares

    def _scale(self, factor):
        for gradient in self._gradients():
            gradient.mul_(factor)
