"""Small programs for the interpreter: each takes a tensor of two elements and a `State`. A name beginning with ``AOTxxx_`` says how it must end."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import operator
from typing import Any, NamedTuple

import torch
from torch import nn

shared: dict[str, Any] = {"n": 1}
counter = 5


# ---- functions and closures ---------------------------------------------------------------------------------------------------------------

def closures(x, s):
    k = 2
    def inner(y, z=3, *, w=4):
        return y * k + z - w
    k = 5
    return inner(x) + inner(x, 1, w=x.sum())


def nonlocals(x, s):
    n = 0
    def bump(by=1):
        nonlocal n
        n += by
        return n
    bump()
    bump(3)
    return x + n, n


def default_is_one_object(x, s):
    def push(v, to=[]):
        to.append(v)
        return to
    push(1)
    return x + len(push(2)), push(3)


def function_attributes(x, s):
    k = 3

    def f(a: int, b: float = 2.0, *, c: str = "z") -> float:
        return a * k + b

    def g(a: int) -> None:
        return a
    return f(x), f.__annotations__, f.__defaults__, f.__kwdefaults__, f.__qualname__, g(x), g.__annotations__


def star_arguments(x, s):
    def f(a, *args, k=1, **named):
        return a, args, k, sorted(named)
    return f(1, 2, 3, k=4, z=5, y=6), f(*[x, 2], **{"k": 3, "m": 1}), f(*(1,), *(2, 3), **{"a2": 1}, **{"b2": 2})


def positional_only(x, s):
    def f(a, b, /, c, *, d):
        return a - b + c * d
    return f(x, 1, c=2, d=3)


def wrong_call_raises(x, s):
    def f(a, b):
        return a
    try:
        return f(x)
    except TypeError as e:
        return x + 1, str(e)


def recursion(x, s):
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)
    return x * fact(5)


def decorators(x, s):
    def twice(f):
        @functools.wraps(f)
        def wrapped(*a):
            return f(f(*a))
        return wrapped
    @twice
    def plus(v):
        return v + 1
    return plus(x), plus.__name__


def partials(x, s):
    p = functools.partial(torch.add, x, alpha=2)
    q = functools.partial(lambda a, b, c: a - b * c, 1, c=3)
    return p(x), q(x)


def reduces(x, s):
    return functools.reduce(lambda a, b: a * b + x, [1, 2, 3], x), functools.reduce(operator.add, s.items)


def lambdas_in_list_see_last(x, s):
    fs = [lambda: i for i in range(3)]
    return [f() for f in fs], x + fs[0]()


# ---- comprehensions and generators --------------------------------------------------------------------------------------------------------

def comprehensions(x, s):
    k = 2
    a = [i * k + x for i in range(3) if i != 1]
    b = {n: len(n) for n in ["p", "qq"]}
    c = {i % 2 for i in range(4)}
    return a, b, c, [(i, j) for i in range(2) for j in range(i + 1)]


def generators(x, s):
    def gen(n):
        got = yield 0
        for i in range(n):
            got = yield (got or i) * 2
        return "end"
    g = gen(3)
    out = [next(g), g.send(5), g.send(None)]
    def outer():
        r = yield from gen(1)
        yield r
    return x * sum(out), list(outer()), out


def generator_throw_and_close(x, s):
    log = []
    def gen():
        try:
            while True:
                try:
                    yield 1
                except ValueError:
                    log.append("value")
                    yield 2
        finally:
            log.append("closed")
    g = gen()
    a = next(g)
    b = g.throw(ValueError("v"))
    g.close()
    return x + a + b, log


def generator_expression_in_call(x, s):
    return sum(x * i for i in s.items), max(i * i for i in range(4)), any(i > 1 for i in s.items), all(v for v in [1, 0]), tuple(i for i in range(2))


def stop_iteration_value(x, s):
    def gen():
        yield x
        return 7
    g = gen()
    first = next(g)
    try:
        next(g)
    except StopIteration as e:
        return first, e.value
    return None


def next_default(x, s):
    it = iter([])
    return next(it, "none"), x + next(iter([4]), 0)


# ---- exceptions and with ------------------------------------------------------------------------------------------------------------------

def try_except_else_finally(x, s):
    log = []
    for v in [1, 0, "a", None]:
        try:
            r = 6 // v
        except ZeroDivisionError:
            log.append("zero")
        except (TypeError, ValueError) as e:
            log.append(type(e).__name__)
        else:
            log.append(r)
        finally:
            log.append("f")
    return x + len(log), log


def finally_overrides_return(x, s):
    def f():
        try:
            return 1
        finally:
            return 2
    def g():
        for i in range(3):
            try:
                continue
            finally:
                if i == 1:
                    break
        return i
    return x + f() + g()


def raise_from(x, s):
    try:
        try:
            raise KeyError("k")
        except KeyError as e:
            raise ValueError("v") from e
    except ValueError as e:
        return x + 1, repr(e), repr(e.__cause__), repr(e.__context__)


def reraise(x, s):
    class_name = "none"
    try:
        try:
            {}["missing"]
        except LookupError:
            raise
    except KeyError as e:
        class_name = type(e).__name__ + str(e)
    return x * 2, class_name


def custom_exception(x, s):
    try:
        raise Problem("bad", 3)
    except Problem as p:
        return x + p.amount, str(p), p.args


class Problem(Exception):
    def __init__(self, what, amount):
        super().__init__(what)
        self.amount = amount


def exception_from_callee(x, s):
    def deep(n):
        if n == 0:
            raise IndexError("deep")
        return deep(n - 1)
    try:
        deep(3)
    except IndexError as e:
        return x - 1, e.args[0]


def assertions(x, s):
    try:
        assert s.count == 4, "not four"
    except AssertionError as e:
        return x, str(e)


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, trace):
        self.log.append(kind.__name__ if kind else "exit")
        return self.swallow


def with_user_manager(x, s):
    log = []
    with Manager(log) as m, Manager(log, True):
        log.append(m is not None)
        raise ValueError("swallowed")
    with Manager(log):
        y = x * 2
    return y, log


@contextlib.contextmanager
def managed(log, name):
    log.append("in " + name)
    try:
        yield name
    finally:
        log.append("out " + name)


def with_contextmanager(x, s):
    log = []
    with managed(log, "a") as a:
        with managed(log, "b"):
            x = x + len(a)
    return x, log


def with_suppress_and_nullcontext(x, s):
    with contextlib.suppress(KeyError):
        {}["k"]
    with contextlib.nullcontext(4) as v:
        x = x + v
    return x


def with_exit_stack(x, s):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log, "one"))
        stack.callback(log.append, "callback")
        y = x + 1
    return y, log


def with_no_grad(x, s):
    w = s.scale
    with torch.no_grad():
        y = w * x
    return y, torch.is_grad_enabled()


# ---- expressions --------------------------------------------------------------------------------------------------------------------------

def matching(x, s):
    out = []
    for subject in [0, 7, "go north", [1, 2, 3], {"k": 1, "r": 2}, Point(1, 2), (4, 5), None, True]:
        match subject:
            case 0:
                r = "zero"
            case int(n) if n > 5:
                r = n
            case str() as text:
                r = text.split()
            case [first, *rest]:
                r = (first, rest)
            case {"k": v, **more}:
                r = (v, more)
            case Point(a=1, b=b):
                r = b
            case None | True:
                r = "literal"
            case _:
                r = "other"
        out.append(r)
    return x, out


def f_strings(x, s):
    n, pi = s.count, 3.14159
    return x, f"{n!r} {pi:.2f} {n:>4}|{n=} {'a':{n}}| {s.pair[1]!s:>5} {x.shape}", "%s-%d" % ("q", n), "{:03d} {k}".format(n, k=1)


def walrus_and_chains(x, s):
    r = []
    while (n := len(r)) < 3:
        r.append(n)
    return x + n, r, 0 < n <= 3 < 9, 1 < 0 < undefined_name_never_read if n > 9 else None


def unpacking(x, s):
    a, *b, c = range(5)
    (d, e), f = s.pair, s.count
    [g, h] = x
    i, *_ = "xyz"
    t = (*b, a, *[c])
    first = last = x + 1
    return d, e, f, g * h, i, t, {**s.table, "n": 0}.keys() == {"a", "b", "n"}, first is last


def short_circuits(x, s):
    log = []
    def note(v):
        log.append(v)
        return v
    r = note(0) or note("") or note(3) and note(4)
    q = note(None) and note(1)
    return x + r, q, log, not s.items, "yes" if s.flag else "no"


def augmented(x, s):
    y = x.clone()
    z = y
    y += 1
    y *= s.scale
    n = 7
    n //= 2
    n **= 2
    n <<= 1
    n |= 1
    t = (1,)
    t += (2,)
    return y, z is y, n, t


def slices(x, s):
    l = list(range(6))
    l[1:3] = ["a"]
    del l[-1]
    return x[1:], x[None, ::2], x[..., 0], l, l[::-1], "hello"[1:4], slice(1, 2, None)


def number_semantics(x, s):
    n = s.count
    return -7 // 2, -7 % 3, 7.5 // 2, divmod(-7, 2), round(2.5), round(n / 7, 3), 2 ** -1, n / 2, int(-3.7), math.floor(-3.2), n ** 2, abs(-n), x + n


def comparisons(x, s):
    return [1, 2] == [1, 2], (1, 2) < (1, 3), "a" in "cat", 1 not in [2], None is None, 1 == 1.0, {1, 2} >= {1}, x is x, [x] is [x]


# ---- classes and objects ------------------------------------------------------------------------------------------------------------------

class Point:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __add__(self, other):
        return Point(self.a + other.a, self.b + other.b)

    def __radd__(self, other):
        return Point(self.a + other, self.b)

    def __mul__(self, k):
        return NotImplemented if isinstance(k, str) else Point(self.a * k, self.b * k)

    __rmul__ = __mul__

    def __eq__(self, other):
        return isinstance(other, Point) and (self.a, self.b) == (other.a, other.b)

    def __lt__(self, other):
        return self.a < other.a

    def __hash__(self):
        return hash((self.a, self.b))

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (self.a, self.b)[i]

    def __iter__(self):
        yield self.a
        yield self.b

    def __contains__(self, v):
        return v in (self.a, self.b)

    def __call__(self, v):
        return v + self.a

    def __bool__(self):
        return self.b != 0

    def __neg__(self):
        return Point(-self.a, -self.b)

    def __repr__(self):
        return f"Point({self.a}, {self.b})"


def operators(x, s):
    p, q = Point(1, 2), Point(3, 4)
    r = p + q
    t = 5 + p
    m = 2 * p * 3
    try:
        p * "s"
        failed = False
    except TypeError:
        failed = True
    return x * r.a, t.a, m.b, p == Point(1, 2), p != q, p < q, q > p, len(p), p[1], list(p), 2 in p, p(x), bool(Point(1, 0)), (-p).a, repr(p), failed


def new_object_returned(x, s):
    p = Point(x + 1, s.count)
    p.extra = [x]
    return p


class Meter:
    instances = 0
    unit = "m"

    def __init__(self, v):
        self._v = v
        type(self).unit

    @property
    def value(self):
        return self._v * 2

    @value.setter
    def value(self, v):
        self._v = v + 1

    @classmethod
    def make(cls, v):
        return cls(v)

    @staticmethod
    def plus(a, b):
        return a + b

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(name)


class SubMeter(Meter):
    def __init__(self, v):
        super().__init__(v + 1)

    @property
    def value(self):
        return super().value + 100

    @classmethod
    def make(cls, v):
        return super().make(v * 2)


def properties(x, s):
    m = Meter(2)
    m.value = 5
    sub = SubMeter.make(3)
    return x + m.value, m.dyn_abc, hasattr(m, "nothing"), getattr(m, "zip", 9), Meter.plus(1, 2), sub.value, type(sub).__name__, sub.unit


def outside_property(x, s):
    before = s.total
    s.total = 10
    return x + before, s.count, s.doubled(x)


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, value):
        setattr(obj, self.name, value * 10)


class Described:
    field = Descriptor()


def descriptors(x, s):
    d = Described()
    a = d.field
    d.field = 4
    return x, a, d.field, d.__dict__


@dataclasses.dataclass
class Config:
    a: int
    b: float = 2.0
    items: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.items.append(self.a)


@dataclasses.dataclass(frozen=True)
class Frozen:
    t: Any
    n: int = 1


def dataclass_use(x, s):
    c = Config(3)
    d = dataclasses.replace(c, b=5.0)
    f = Frozen(x + 1)
    try:
        f.n = 3
        failed = False
    except dataclasses.FrozenInstanceError:
        failed = True
    return c, d.b, f, failed, [v.name for v in dataclasses.fields(c)]


class Pair(NamedTuple):
    left: Any
    right: Any = 2

    def both(self):
        return self.left + self.right


Plain = collections.namedtuple("Plain", "p q")


def named_tuples(x, s):
    p = Pair(x)
    a, b = p
    return p.both(), p._replace(right=5), Plain(1, q=2)._asdict(), p[1], isinstance(p, tuple)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


def enums(x, s):
    c = Color(2)
    return x + Level.HIGH, c, c is Color.BLUE, c.name, Color["RED"].value, [m.name for m in Color], Level.LOW < Level.HIGH


def isinstance_and_friends(x, s):
    return (isinstance(x, torch.Tensor), isinstance(3, (int, str)), issubclass(SubMeter, Meter), type(x) is torch.Tensor, callable(s.doubled), hasattr(s, "count"),
            hasattr(s, "nope"), getattr(s, "nope", 1), type(s).__name__, isinstance(s.items, list), isinstance(True, int), x.dtype == torch.float32)


def setattr_delattr(x, s):
    setattr(s, "made", x + 1)
    s.count += 2
    del s.flag
    return hasattr(s, "flag"), s.made * 2, s.count


def object_identity(x, s):
    a = s.items
    b = s.items
    c = list(a)
    return a is b, c is a, c == a, x


# ---- containers ---------------------------------------------------------------------------------------------------------------------------

def outside_list(x, s):
    s.items.append(x * 2)
    s.items.insert(0, "first")
    s.items[1] = 9
    s.items.extend([5, 6])
    popped = s.items.pop()
    s.items.reverse()
    return popped, len(s.items), x in [1]if False else None


def outside_dict(x, s):
    s.table["new"] = x + s.table["a"]
    s.table["a"] = 0
    gone = s.table.pop("b")
    d = s.table.setdefault("list", [])
    d.append(1)
    s.table.update({"u": 2}, v=3)
    return gone * 2, list(s.table), "b" in s.table, s.table.get("zz", "dflt")


def outside_set(x, s):
    s.names.add("z")
    s.names.discard("x")
    s.names |= {"w"}
    return x, len(s.names), "z" in s.names, sorted(s.names)


def outside_nested(x, s):
    s.nested["deep"][0]["k"] += 1
    s.nested["deep"].append({"t": x})
    return s.nested["deep"][0]["k"] + x


def outside_list_grown_in_loop(x, s):
    for i, v in enumerate(s.items):
        if len(s.items) < 5:
            s.items.append(v + 10)
    return x + len(s.items)


def new_containers(x, s):
    l = [3, 1, 2]
    l.sort(reverse=True)
    d = dict(a=1, **{"b": x})
    d2 = d | {"c": 2}
    st = {1, 2} ^ {2, 3}
    l2 = l * 2 + [0]
    l.clear()
    return l, l2, d2, st, frozenset([1]), [[]] * 2, {}.get("q"), d.items() and list(d.values())


def collections_use(x, s):
    dd = collections.defaultdict(list)
    dd["k"].append(x)
    c = collections.Counter("abca")
    q = collections.deque([1, 2], maxlen=2)
    q.append(3)
    q.appendleft(0)
    od = collections.OrderedDict(b=1, a=2)
    od.move_to_end("b")
    cm = collections.ChainMap({"p": 1}, {"p": 2, "r": 3})
    return dd, c["a"], c.most_common(1), q, od, cm["p"] + cm["r"], x


def itertools_use(x, s):
    a = list(itertools.chain([1], (2, 3)))
    b = list(itertools.islice(itertools.count(5), 2))
    c = [list(g) for _, g in itertools.groupby([1, 1, 2], key=lambda v: v)]
    d = list(itertools.product("ab", [0, 1]))
    e = list(itertools.accumulate([1, 2, 3], lambda p, q: p * q + x))
    f = list(itertools.zip_longest([1], [2, 3], fillvalue=0))
    g = list(itertools.starmap(lambda p, q: p + q, [(1, 2)]))
    h = list(itertools.takewhile(lambda v: v < 3, s.items + [3]))
    return a, b, c, d, e, f, g, h, list(itertools.combinations([1, 2, 3], 2)), list(itertools.repeat(7, 2))


def builtin_iteration(x, s):
    a = sorted([3, 1, 2], key=lambda v: -v)
    b = list(map(lambda p, q: p * q, [1, 2], [x, 3]))
    c = list(filter(None, [0, 1, "", "a"]))
    d = list(zip(s.items, "ab", strict=True))
    e = [(i, v) for i, v in enumerate(["p"], start=5)]
    f = list(reversed(s.items))
    g = min([3, -4], key=abs), max("ab", "c"), max([], default=1), sum([1.5, 2], 1)
    return a, b, c, d, e, f, g, list(range(5, 0, -2)), sorted(s.table), any([]), all([])


def iterating_tensor(x, s):
    return [v * 2 for v in x], len(x), sum(x), list(zip(x, x + 1)), max(len(r) for r in [[1], [1, 2]])


def user_iterator(x, s):
    class_items = []
    for v in Countdown(3):
        class_items.append(v)
    a, b, c = Countdown(3)
    return class_items, list(Countdown(2)), a + b + c + x, sum(Countdown(4)), tuple(zip(Countdown(2), "ab")), 2 in Countdown(3)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n + 1


def string_methods(x, s):
    return x, "a,b".split(","), "-".join(["p", "q"]), "abc".upper().startswith("A"), " x ".strip(), "x".zfill(3), b"ab".hex(), "é".encode(), ord("a"), chr(98)


class MyDict(dict):
    def __missing__(self, key):
        self[key] = key * 2
        return self[key]

    def __setitem__(self, key, value):
        super().__setitem__(key, (value,))


class MyList(list):
    def total(self):
        return sum(self)


def container_subclasses(x, s):
    d = MyDict()
    d["a"] = x
    m = MyList([1, 2])
    m.append(3)
    return d["a"], d["zz"], len(d), m.total() + x, isinstance(m, list)


# ---- globals ------------------------------------------------------------------------------------------------------------------------------

def global_reads(x, s):
    return x + counter + shared["n"], math.pi


def global_dict_write(x, s):
    shared["n"] += 1
    shared["t"] = x * 2
    return shared["n"] + x


def global_missing(x, s):
    try:
        return not_there  # noqa: F821
    except NameError as e:
        return x, str(e)


def local_unbound(x, s):
    try:
        if s.count > 100:
            late = 1
        return late
    except UnboundLocalError:
        return x + 1


def deleted_local(x, s):
    y = x
    del y
    try:
        return y
    except UnboundLocalError as e:
        return x * 3, type(e).__name__


def imports_inside(x, s):
    import math as m
    from torch.nn import functional as F
    import torch.nn.functional as G
    return F.relu(x) + m.sqrt(4), G is F


# ---- modules ------------------------------------------------------------------------------------------------------------------------------

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("shift", torch.ones(2))
        self.calls = 0

    def forward(self, x):
        return x * self.scale + self.shift


torch.manual_seed(0)
sequence = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).eval()
several = nn.ModuleList([Block(), Block()])
by_name = nn.ModuleDict({"a": Block(), "b": nn.Tanh()})
hooked = Block()
hooked.register_forward_hook(lambda module, given, out: out * 10)
hooked.register_forward_pre_hook(lambda module, given: (given[0] + 1,))


def modules(x, s):
    y = sequence(x)
    for block in several:
        x = block(x)
    z = by_name["b"](by_name["a"](x))
    return y, x, z, len(several), [n for n, _ in by_name.items()], sequence.training


def module_hooks(x, s):
    return hooked(x)


def module_parameters(x, s):
    return sum(p.sum() for p in sequence.parameters()) + x, [n for n, _ in several.named_parameters()], several[1].shift


# ---- what must break or be refused ----------------------------------------------------------------------------------------------------------

def AOT201_prints(x, s):
    print(x.shape)
    return x


def AOT202_branch_on_a_tensor(x, s):
    if x.sum() > 0:
        return x
    return -x


def AOT203_item(x, s):
    return x, x.sum().item()


def AOT203_formats_a_tensor(x, s):
    return x, f"{x}"


def AOT203_float_of_a_tensor(x, s):
    return x, float(x.sum())


def AOT210_class_inside(x, s):
    class Inner:
        pass
    return x, Inner()


def AOT206_raises(x, s):
    raise ValueError(f"always {s.count}")


def AOT204_calls_a_library(x, s):
    import traceback
    return x, traceback.format_exc()


def dictionary_of_a_changed_object(x, s):
    s.count = 1
    return x, "count" in s.__dict__


def wrong_calls_say_what_cpython_says(x, s):
    def f(a, b, c, /, d, *, e):
        return a
    def g(a, b=1):
        return a
    said = []
    for call in (lambda: f(), lambda: f(1), lambda: f(1, 2), lambda: f(1, 2, 3, 4), lambda: f(1, 2, 3, 4, 5, e=1), lambda: g(1, 2, 3), lambda: g(1, z=2),
                 lambda: g(1, a=2), lambda: g()):
        try:
            call()
        except TypeError as e:
            said.append(str(e))
    return x, said


def several_new_objects(x, s):
    a, b, c = Point(x, 1), Config(1), collections.OrderedDict(k=[1])
    d = collections.defaultdict(int, z=1)
    e = [a, b, {"c": c}]
    return a, b, c, d, e, e[0] is a, Point(a, b)
