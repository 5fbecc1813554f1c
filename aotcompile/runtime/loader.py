"""Loading of generated packages: `bind` for generated modules, `load` for programs, and everything that is checked before compiled code is trusted.

A `Package` is a folder with a manifest. Nothing but that is read before the first call of a region; then only that region's files are, and each
file's digest is compared with the manifest's before it is used. What cannot be trusted is refused with a reason (``report().refusals``, one
warning) and the eager body runs:

    AOT601 the manifest is missing, unreadable or of an unknown schema      AOT604 no binary for this processor
    AOT602 torch is outside the supported range                             AOT605 a file is missing or its path leaves the package
    AOT603 a file's digest is not the manifest's                            AOT606 the plan needs something this runtime does not have
    AOT608 a library's code that was compiled in is not the code of now
"""
from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Callable, Iterator, Sequence

import torch

from aotcompile.runtime import digest, executor, reporting
from aotcompile.runtime.autograd import Training
from aotcompile.runtime.plugin import PluginGraph
from aotcompile.runtime.guards import Context, Guards, UnsupportedPlan
from aotcompile.runtime.stub import Region, Variant

SCHEMA = 1
PLAN_SCHEMAS = (1, 2)                                            # 2: several nodes of autograd's graph have a backward graph each
NATIVE_PROTOCOL = 1
NATIVE_MODULE = "_aotcompile_native"
TORCH_VERSIONS = ((2, 11), (2, 14))
COMPUTATION_MARK = "\n# ---- computation"
MANIFEST = "manifest.json"
_LEVELS = (                                                      # cumulative: a level needs the flags of all levels before it
    ("x86-64", ()), ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64-v3", ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")))


class Refused(Exception):
    """What is asked for is not trusted or cannot run here. The message begins with its code."""


# ---- this machine -------------------------------------------------------------------------------------------------------------------------

@functools.cache
def cpu_levels() -> tuple[str, ...]:
    """The instruction-set levels of this processor that binaries may be built for, best first ("x86-64-v3", ..., or "aarch64")."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    if machine not in ("x86_64", "AMD64"):
        return (machine,)
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            head = file.read(1 << 13)                            # the first processor's block; the whole file takes long on large machines
    except OSError:
        return ("x86-64",)
    line = next((line for line in head.splitlines() if line.startswith("flags")), "")
    flags, levels = set(line.partition(":")[2].split()), []
    for name, needed in _LEVELS:
        if not flags.issuperset(needed):
            break
        levels.append(name)
    return tuple(reversed(levels))


def best_target(targets: Sequence[str]) -> str | None:
    """The best of the CPU targets ("cpu-x86-64-v3", or "cpu" for any of its architecture) that this processor can run."""
    by_level = {target[4:]: target for target in targets if target.startswith(("cpu-", "cpu:"))}
    return next((by_level[level] for level in cpu_levels() if level in by_level), "cpu" if "cpu" in targets else None)


def torch_refusal(version: str) -> str | None:
    """Why this torch is not supported; None if it is."""
    first, last = TORCH_VERSIONS
    try:
        found = tuple(int(part) for part in version.split(".")[:2])
    except ValueError:
        found = (0, 0)
    if first <= found <= last:
        return None
    return f"AOT602 torch {version} is outside the supported range {first[0]}.{first[1]} to {last[0]}.{last[1]}"


# ---- packages -----------------------------------------------------------------------------------------------------------------------------

class Package:
    """A generated package's folder. ``import_name``: its name in this process ("" until known)."""

    def __init__(self, folder: str, import_name: str = "") -> None:
        self.folder, self.import_name = folder, import_name
        self.lock = threading.RLock()                            # of the manifest; `loading` is of the variants, and may import the user's modules
        self.loading = threading.RLock()
        self.shared: dict[str, _Shared] = {}                     # variant folder -> what was loaded from it
        self.callees: Any = None                                 # the twins of other packages' functions, once one is called
        self._libraries: dict[str, str | None] = {}              # module of a library -> why code compiled from it is not to be used
        self._manifest: dict[str, Any] | None = None
        self._refusal: str | None = None

    @property
    def name(self) -> str:
        return str(self.manifest()["package"])

    def manifest(self) -> dict[str, Any]:
        """manifest.json, read once. Raises Refused AOT601, AOT602."""
        with self.lock:
            if self._manifest is None and self._refusal is None:
                try:
                    self._manifest = self._read_manifest()
                except Refused as refusal:
                    self._refusal = str(refusal)
            if self._manifest is None:
                raise Refused(self._refusal)
            return self._manifest

    def _read_manifest(self) -> dict[str, Any]:
        refusal = torch_refusal(torch.__version__)
        if refusal:
            raise Refused(refusal)
        try:
            with open(os.path.join(self.folder, MANIFEST), "rb") as file:
                data = json.loads(file.read())
        except (OSError, ValueError, RecursionError) as error:
            raise Refused(f"AOT601 the manifest cannot be read: {error}") from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise Refused(f"AOT601 the manifest has schema {data.get('schema') if isinstance(data, dict) else None!r}, this runtime reads {SCHEMA}")
        kinds = {"package": str, "regions": dict, "files": dict, "kernels": dict}
        wrong = [key for key, kind in kinds.items() if not isinstance(data.get(key), kind)]
        if wrong:
            raise Refused(f"AOT601 the manifest has no {wrong[0]!r}")
        return data

    def path(self, relative: str) -> str:
        """The file's absolute path. Raises Refused AOT605 for one outside the package."""
        parts = relative.split("/")
        if os.path.isabs(relative) or ".." in parts or "" in parts or "\\" in relative or "\0" in relative:
            raise Refused(f"AOT605 {relative!r} is no path inside the package")
        return os.path.join(self.folder, *parts)

    def verified(self, relative: str) -> bytes:
        """The file's content. Raises Refused AOT603, AOT605."""
        expected = self.manifest()["files"].get(relative)
        try:
            with open(self.path(relative), "rb") as file:
                data = file.read()
        except OSError as error:
            raise Refused(f"AOT605 {relative} cannot be read: {error.strerror or error}") from error
        if expected is None or hashlib.sha256(data).hexdigest() != expected:
            raise Refused(f"AOT603 {relative} is not the file that was built (its digest differs from the manifest's)")
        return data

    def text(self, relative: str) -> str:
        return self.verified(relative).decode("utf-8")

    def has(self, relative: str) -> bool:
        return relative in self.manifest()["files"]

    def variants_of(self, module: str, region: str) -> list[str]:
        """The variant folders of a region. Raises Refused AOT605 for a region that the manifest does not have."""
        regions = self.manifest()["regions"]
        entry = (regions.get(module) or {}).get(region)
        if not isinstance(entry, dict):
            raise Refused(f"AOT605 the manifest has no region {module}:{region}")
        return list(entry["variants"])

    def require_libraries(self, modules: Sequence[str]) -> None:
        """Raises Refused AOT608 if the code of one of these modules is not what was compiled."""
        for module in modules:
            if module not in self._libraries:
                self._libraries[module] = self._library_refusal(module)
            if reason := self._libraries[module]:
                raise Refused(reason)

    def _library_refusal(self, module: str) -> str | None:
        version, source = self.manifest()["libraries"][module]
        if digest.has_same_code(module, (version, source)):
            return None
        found = digest.library_code(module)
        if found is None:
            return f"AOT608 {module}, whose code was compiled in, is not installed"
        name = module.partition(".")[0]
        change = f"{name} {version} then, {found.version} now" if version != found.version else f"its file was edited, {name} is {version} as it was"
        return f"AOT608 {module} is not the code that was compiled in ({change}); build again"

    def binary(self, folder: str) -> str:
        """Path of the verified kernels of a variant for this processor. Raises Refused AOT603, AOT604."""
        targets = self.manifest()["kernels"].get(folder) or {}
        paths = {target: path for target, path in targets.items() if isinstance(path, str)}
        target = best_target(list(paths))
        if target is None:
            built = ", ".join(sorted(targets)) or "none"
            raise Refused(f"AOT604 no binary of {folder} runs on this processor ({cpu_levels()[0]}); built for: {built}")
        self.verified(paths[target])
        return self.path(paths[target])


_packages: dict[str, Package] = {}
_native: list[Any] = []                                          # the extension, once it was looked for: [module] or [None]
_lock = threading.RLock()


def _after_fork() -> None:
    """Locks that a thread of the parent held at the fork would never be released here."""
    global _lock
    _lock = threading.RLock()
    for package in _packages.values():
        package.lock, package.loading = threading.RLock(), threading.RLock()
    for region in reporting.live_regions():
        region.after_fork()
    if _native and _native[0] is not None and hasattr(_native[0], "after_fork"):
        _native[0].after_fork()


os.register_at_fork(after_in_child=_after_fork)


def package_at(folder: str, import_name: str = "") -> Package:
    """The process's `Package` of a folder."""
    with _lock:
        package = _packages.get(folder)
        if package is None:
            package = _packages[folder] = Package(folder)
        if import_name:
            package.import_name = import_name
        return package


def package_around(module_file: str) -> Package:
    """The package that a generated module is in: the nearest folder above with a manifest, the module's own folder where there is none."""
    home = folder = os.path.dirname(os.path.abspath(module_file))
    while not os.path.isfile(os.path.join(folder, MANIFEST)):
        above = os.path.dirname(folder)
        if above == folder:
            return package_at(home)                              # refused, with the reason, at the first call
        folder = above
    return package_at(folder)


# ---- the native extension -----------------------------------------------------------------------------------------------------------------

def native(package: Package) -> Any:
    """The native extension, loaded from the first package that has one for this torch and CPython; None without one. See PROTOCOL.md."""
    with _lock:
        if _native:
            return _native[0]
        if os.environ.get("AOTCOMPILE_NATIVE") == "0":
            _native.append(None)
            return None
        folder = f"_aot/bin/host-{torch.__version__.partition('+')[0]}-cp{sys.version_info[0]}{sys.version_info[1]}"
        if not os.path.isdir(os.path.join(package.folder, *folder.split("/"))):
            return None
        try:
            _native.append(_load_native(package, folder))
        except Refused as refusal:
            reporting.refuse(f"{package.folder}:native", f"{refusal}. The Python runtime is used instead.")
            return None
        return _native[0]


def _load_native(package: Package, folder: str) -> Any:
    files = sorted(path for path in package.manifest()["files"] if path.startswith(f"{folder}/") and path.endswith(".so"))
    if not files:
        raise Refused(f"AOT605 {folder} has no extension that the manifest names")
    package.verified(files[0])
    loader = importlib.machinery.ExtensionFileLoader(NATIVE_MODULE, package.path(files[0]))
    specification = importlib.util.spec_from_file_location(NATIVE_MODULE, package.path(files[0]), loader=loader)
    assert specification is not None
    try:
        module = importlib.util.module_from_spec(specification)
        loader.exec_module(module)
    except ImportError as error:
        raise Refused(f"AOT606 {files[0]} cannot be loaded: {error}") from error
    if getattr(module, "PROTOCOL", None) != NATIVE_PROTOCOL:
        raise Refused(f"AOT606 {files[0]} speaks protocol {getattr(module, 'PROTOCOL', None)!r}, this runtime {NATIVE_PROTOCOL}")
    if hasattr(module, "set_stance"):
        reporting.on_stance(lambda name: module.set_stance(reporting.STANCES.index(name)))
    return module


def _entry(extension: Any, name: str, python: Callable[[], Any], *arguments: Any) -> Any:
    """The native object ``name`` made from ``arguments``, else the Python one."""
    constructor = getattr(extension, name, None)
    if constructor is not None:
        try:
            return constructor(*arguments)
        except NotImplementedError:
            pass                                                 # the plan has something that only the Python twin does: that is what it is for
    return python()


class _NativeGraph:
    """A native graph whose kernel failures are the Python runtime's."""

    def __init__(self, graph: Any, failure: type[BaseException]) -> None:
        self.native, self._failure = graph, failure

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        try:
            found: Sequence[Any] = self.native(inputs)
            return found
        except self._failure as failure:
            kernel, status = (*failure.args, "", 0)[:2]
            raise executor.KernelFailure(str(kernel), int(status)) from failure


# ---- variants -----------------------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class _Shared:
    """What all stubs of a variant have in common: a region whose eager body is a closure has a stub per function object."""

    plan: dict[str, Any]
    graph: Any
    training: Training | None
    epilogue: Any
    differentiable: bool
    kernels: Any


def load_variant(package: Package, folder: str, eager: FunctionType) -> Variant:
    """One variant, with every file verified. Raises Refused, UnsupportedPlan."""
    context = Context.of(eager, package.name, package.import_name or package.name)
    with package.loading:
        shared = package.shared.get(folder)
        if shared is None:
            shared = package.shared[folder] = _load_shared(package, folder, context)
    plan = shared.plan
    fetch = [*(given["path"] for given in plan["inputs"]), *plan["fetches"]]
    checker = _entry(native(package), "Guards", lambda: Guards(plan["guards"], fetch, context), plan["guards"], fetch, context.as_dict())
    guards = checker if isinstance(checker, Guards) else Guards(plan["guards"], fetch, context, lazy=True)
    variant = Variant(plan, guards, shared.graph, shared.training, shared.epilogue, shared.differentiable)
    variant.checker = checker
    return variant


def _load_shared(package: Package, folder: str, context: Context) -> _Shared:
    text = package.text(f"{folder}/plan.json")
    _register_operators(text)
    plan = json.loads(text)
    if plan.get("schema") not in PLAN_SCHEMAS:
        raise Refused(f"AOT606 {folder}/plan.json has schema {plan.get('schema')!r}, this runtime reads {', '.join(map(str, PLAN_SCHEMAS))}")
    package.require_libraries(plan.get("libraries", ()))
    for name in ("guards.py", "wrapper.py"):
        if package.has(f"{folder}/{name}"):
            package.verified(f"{folder}/{name}")
    extension = native(package)
    names = executor.kernel_names(plan["graphs"])
    targets = package.manifest()["kernels"].get(folder) or {}
    on_gpu = any(target.startswith("cuda") for target in targets)
    kernels = _gpu_kernels(package, targets, names) if on_gpu else executor.Kernels(package.binary(folder) if names else None, names)
    functions: dict[str, Any] = {}
    has_wrapper = package.has(f"{folder}/wrapper.py")
    if has_wrapper and (plan["result"] is None or not hasattr(extension, "Graph")):
        functions.update(_wrapper(package, folder, context, epilogue_only=hasattr(extension, "Graph") and not on_gpu))

    def graph(name: str) -> Any:
        def python() -> Any:
            if name not in functions and has_wrapper:
                functions.update(_wrapper(package, folder, context, epilogue_only=False))
            return executor.WrapperGraph(functions[name], kernels) if name in functions else executor.Graph(plan["graphs"][name], kernels)
        if on_gpu:                                               # launches go through the CUDA driver
            return python()
        made = _entry(extension, "Graph", python, plan["graphs"][name], kernels.addresses())
        return made if isinstance(made, (executor.Graph, executor.WrapperGraph)) else _NativeGraph(made, extension.KernelFailure)

    def computation() -> Any:
        source = package.text(f"{folder}/graph.py")
        _register_operators(source)
        return _execute_text(source, package.path(f"{folder}/graph.py"), {})["computation"]

    epilogue = functions.get("epilogue")
    if not plan["graphs"]:                                       # the captured graph itself, or what a plug-in makes of it, differentiated by torch
        function = computation()
        if ":" in plan["backend"]:
            function = PluginGraph(function, _plugin(plan["backend"], context), len(plan["inputs"]))

        def captured(inputs: Sequence[Any]) -> Sequence[Any]:
            outputs: Sequence[Any] = function(*inputs)
            return outputs
        return _Shared(plan, captured, None, epilogue, True, kernels)
    if plan["training"] and any(name.startswith("backward") for name in plan["graphs"]):
        return _Shared(plan, None, Training(plan, graph, computation), epilogue, False, kernels)
    # In training no backward graph is made where no output requires grad.
    return _Shared(plan, graph("forward" if plan["training"] else "inference"), None, epilogue, False, kernels)


def _register_operators(text: str) -> None:
    """Give torch the operators of ours that a plan or a graph calls."""
    if "aotcompile.recurrent_layer" in text:
        import aotcompile.runtime.operators.recurrent  # noqa: F401  (it registers them)


def _plugin(backend: str, context: Context) -> Any:
    """The plug-in backend ``module:function``. Raises Refused AOT606."""
    module, _, qualname = backend.partition(":")
    try:
        return _resolve(context.module_name(module), qualname)
    except UnsupportedPlan as error:
        raise Refused(f"AOT606 the backend {backend} cannot be imported here: {error.__cause__}") from error


def _gpu_kernels(package: Package, targets: dict[str, Any], names: Sequence[str]) -> Any:
    """Kernels launched through the CUDA driver; its module is loaded only where a package has any."""
    from aotcompile.runtime.cuda import CudaKernels

    return CudaKernels(targets, package.verified, names)


def _wrapper(package: Package, folder: str, context: Context, *, epilogue_only: bool) -> dict[str, Any]:
    """The functions of wrapper.py; ``epilogue_only`` leaves out the computation, which the native executor takes from plan.json."""
    variables: dict[str, Any] = {"torch": torch}
    text = package.text(f"{folder}/wrapper.py")
    if epilogue_only:
        text = text.partition(COMPUTATION_MARK)[0]
    _execute_text(text, package.path(f"{folder}/wrapper.py"), variables)
    for name, target in variables.get("EPILOGUE_IMPORTS", {}).items():
        variables[name] = _resolve(context.module_name(target.partition(":")[0]), target.partition(":")[2])
    return variables


def _resolve(module: str, qualname: str) -> Any:
    """The object by name; modules that are there already are not waited for (another thread may be importing them, and wait for us).

    Raises UnsupportedPlan."""
    try:
        try:
            return functools.reduce(getattr, qualname.split(".") if qualname else (), sys.modules[module])
        except (KeyError, AttributeError):
            return functools.reduce(getattr, qualname.split(".") if qualname else (), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise UnsupportedPlan(f"the epilogue needs {module}:{qualname}, which is not there: {error}") from error


def _execute_text(text: str, path: str, variables: dict[str, Any]) -> dict[str, Any]:
    exec(compile(text, path, "exec", dont_inherit=True), variables)
    return variables


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """A plan is thousands of small lists and dicts, which stay: without this the garbage collector would look through all of torch (100 ms)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def region_loader(package: Package, module: str) -> Callable[[Region], tuple[list[Variant], str | None]]:
    """What a `Region` calls at its first call. ``module``: the module's name in the user's package."""
    def load(region: Region) -> tuple[list[Variant], str | None]:
        variants: list[Variant] = []
        reasons: list[str] = []
        try:
            folders = package.variants_of(module, region.name)
        except Refused as refusal:
            folders, reasons = [], [str(refusal)]
        for folder in folders:
            try:
                with collection_paused():
                    variants.append(load_variant(package, folder, region.eager))
            except Refused as refusal:
                reasons.append(str(refusal))
            except (UnsupportedPlan, NotImplementedError) as error:
                reasons.append(f"AOT606 {folder}: {error}")
            except Exception as error:  # noqa: BLE001  a plan with the right digest but another form: refuse it, whatever it breaks
                reasons.append(f"AOT606 {folder} cannot be loaded: {type(error).__name__}: {error}")
        for reason in dict.fromkeys(reasons):
            where = " where this was to run" if variants else ""
            reporting.refuse(f"{package.folder}:{reason}", f"{reason}. {module}:{region.name} runs eagerly{where}.")
        if region.native is not None and variants:
            region.native.install([variant.as_native() for variant in variants])
        return variants, reasons[0] if reasons and not variants else None
    return load


# ---- bind and load ------------------------------------------------------------------------------------------------------------------------

def make_region(package: Package, module: str, name: str, eager: FunctionType, counters: reporting.Counters | None = None) -> Any:
    """The stub of a region: the native one where there is an extension, else the Python `Region`."""
    region = Region(name, module, eager, region_loader(package, module), counters)
    try:
        extension = native(package)
    except Refused:
        extension = None                                         # said again, with its reason, at the region's first call
    # A closure that is made anew again and again gets Python stubs after a while: the counters would keep all the native ones alive.
    if hasattr(extension, "Stub") and len(region.counters.natives) < 16:
        region.native = extension.Stub(region)
        region.counters.natives.append(region.native)
        return region.native
    return region


def bind(module_name: str, module_file: str) -> Callable[[str, FunctionType], Any]:
    """For generated modules: ``_region = bind(__name__, __file__)``, then ``_r0 = _region("Net.forward:r0", _r0_eager)``. Reads nothing yet."""
    package = package_around(module_file)
    parts = os.path.relpath(os.path.splitext(os.path.abspath(module_file))[0], package.folder).split(os.sep)
    if parts[-1] == "__init__":
        parts.pop()
    if module_name == "__main__":
        specification = getattr(sys.modules.get("__main__"), "__spec__", None)
        module_name = getattr(specification, "name", None) or module_name
    names = module_name.split(".")
    if parts and names[-1] == "__main__" != parts[-1]:
        names.append(parts[-1])
    import_name = ".".join(names[:len(names) - len(parts)] if not parts or names[-len(parts):] == parts else names[:1])
    package.import_name = import_name or package.import_name

    def region(name: str, eager: FunctionType) -> Any:
        try:
            module = ".".join([package.name, *parts])
        except Refused:
            module = module_name
        return make_region(package, module, name, eager)
    return region


def load(package: str, root: str | os.PathLike[str] = "generated") -> ModuleType:
    """Imports the generated twin of ``package`` from the folder ``root``, wherever that is (blanks and non-ASCII letters in its path are fine).

    The twin is called ``<name of root>.<package>`` in sys.modules. Raises ModuleNotFoundError if there is no such generated package."""
    folder = os.path.abspath(os.fspath(root))
    parent = "".join(c if c.isidentifier() or c.isdigit() else "_" for c in os.path.basename(folder)) or "generated"
    if not os.path.isdir(os.path.join(folder, *package.split(".")[:1])):
        raise ModuleNotFoundError(f"no generated package {package!r} in {folder}", name=package)
    with _lock:
        existing = sys.modules.get(parent)
        if existing is not None and folder not in [os.path.abspath(path) for path in getattr(existing, "__path__", [])]:
            parent = f"{parent}_{hashlib.sha256(folder.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
            existing = sys.modules.get(parent)
        if existing is None:
            specification = importlib.machinery.ModuleSpec(parent, None, is_package=True)
            specification.submodule_search_locations = [folder]
            module = importlib.util.module_from_spec(specification)
            sys.modules[parent] = module
    return importlib.import_module(f"{parent}.{package}")
