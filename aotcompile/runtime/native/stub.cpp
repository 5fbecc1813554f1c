// Stub(region): the callable that a rewritten function calls. Checks the variants in order and runs the first that holds; whatever is not the
// ordinary case goes to the Python region's `call`, which has the complete semantics.
#include "include/bridge.h"
#include "include/objects.h"

#include <structmember.h>

#include <atomic>
#include <cstring>
#include <set>

namespace aotcompile {

namespace {

std::atomic<int> current_stance{0};
constexpr int kForceEager = 1;

struct InstalledVariant {
  Ref guards_object, graph_object, epilogue, run;  // graph_object may be empty: only the Python side can run it
  GuardSet* guards = nullptr;
  const Graph* graph = nullptr;
  size_t input_count = 0, fetch_count = 0;
  std::vector<int> result;  // output numbers, when there is no epilogue
  bool result_is_tuple = false, has_result = false, result_repeats = false;
  bool training = false, grad_enabled = false, outputs_require_grad = false;
  std::vector<bool> is_number;
  std::vector<size_t> mutated;
  struct Symbol {
    Ref name;
    size_t input;
    int dimension;
  };
  std::vector<Symbol> symbols;
};

struct StubObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* region;                              // the Python region
  PyObject* region_call;                         // its bound method `call`
  std::vector<InstalledVariant>* variants;       // nullptr until installed; replaced lists are kept in `retired`, a call may still be using them
  std::vector<std::vector<InstalledVariant>*>* retired;
  std::atomic<uint64_t> calls, hits;
  std::atomic<bool> enabled;
};

StubObject* stub_of(PyObject* self) { return reinterpret_cast<StubObject*>(self); }

// ---- install ----------------------------------------------------------------------------------------------------------------------------------

void read_result(InstalledVariant& variant, PyObject* result) {
  if (result == nullptr) return;
  variant.has_result = true;
  variant.result_is_tuple = !PyLong_Check(result);
  const Py_ssize_t count = variant.result_is_tuple ? length_of(result) : 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    variant.result.push_back(static_cast<int>(integer_of(variant.result_is_tuple ? item_of(result, i) : result)));
  }
  variant.result_repeats = std::set<int>(variant.result.begin(), variant.result.end()).size() != variant.result.size();
  if (variant.graph == nullptr) return;
  for (const int index : variant.result) {
    const bool exists = index >= 0 && static_cast<size_t>(index) < variant.graph->output_count();
    if (!exists) fail(PyExc_ValueError, "the result names an output that does not exist");
  }
}

size_t input_index(const InstalledVariant& variant, PyObject* index) {
  const int64_t value = integer_of(index);
  if (value < 0 || static_cast<size_t>(value) >= variant.input_count) fail(PyExc_ValueError, "no such graph input");
  return static_cast<size_t>(value);
}

InstalledVariant read_variant(PyObject* description) {
  InstalledVariant variant;
  PyObject* guards = field(description, "guards");
  if (Py_TYPE(guards) == guards_type) {
    variant.guards_object = Ref::borrow(guards);
    variant.guards = reinterpret_cast<GuardsObject*>(guards)->set;
  }
  PyObject* graph = optional_field(description, "graph");
  if (graph != nullptr && Py_TYPE(graph) == graph_type) {
    variant.graph_object = Ref::borrow(graph);
    variant.graph = reinterpret_cast<GraphObject*>(graph)->graph;
  }
  variant.input_count = static_cast<size_t>(integer_of(field(description, "inputs")));
  variant.fetch_count = static_cast<size_t>(integer_of(field(description, "fetches")));
  if (variant.guards != nullptr && variant.guards->fetch_count() != variant.input_count + variant.fetch_count) {
    fail(PyExc_ValueError, "the guards fetch another number of values than the variant needs");
  }
  const bool same_inputs = variant.graph == nullptr || variant.graph->input_count() == variant.input_count;
  if (!same_inputs) fail(PyExc_ValueError, "the graph has another number of inputs");
  read_result(variant, optional_field(description, "result"));
  if (PyObject* epilogue = optional_field(description, "epilogue")) variant.epilogue = Ref::borrow(epilogue);
  if (PyObject* run = optional_field(description, "run")) variant.run = Ref::borrow(run);
  variant.training = PyObject_IsTrue(field(description, "training")) == 1;
  variant.grad_enabled = PyObject_IsTrue(field(description, "grad_enabled")) == 1;
  PyObject* require_grad = field(description, "output_requires_grad");
  for (Py_ssize_t i = 0; i < length_of(require_grad); ++i) variant.outputs_require_grad |= PyObject_IsTrue(item_of(require_grad, i)) == 1;
  variant.is_number.assign(variant.input_count, false);
  PyObject* numbers = field(description, "numbers");
  for (Py_ssize_t i = 0; i < length_of(numbers); ++i) variant.is_number[input_index(variant, item_of(item_of(numbers, i), 0))] = true;
  PyObject* mutated = field(description, "mutated");
  for (Py_ssize_t i = 0; i < length_of(mutated); ++i) variant.mutated.push_back(input_index(variant, item_of(mutated, i)));
  PyObject* symbols = field(description, "symbols");
  for (Py_ssize_t i = 0; i < length_of(symbols); ++i) {
    PyObject* symbol = item_of(symbols, i);
    variant.symbols.push_back({interned(text_of(item_of(symbol, 0))), input_index(variant, item_of(symbol, 1)),
                               static_cast<int>(integer_of(item_of(symbol, 2)))});
  }
  return variant;
}

PyObject* stub_install(PyObject* self, PyObject* list) {
  return guarded([&]() -> PyObject* {
    auto variants = std::make_unique<std::vector<InstalledVariant>>();
    for (Py_ssize_t i = 0; i < length_of(list); ++i) variants->push_back(read_variant(item_of(list, i)));
    StubObject* stub = stub_of(self);
    if (stub->variants != nullptr) stub->retired->push_back(stub->variants);
    stub->variants = variants.release();
    Py_RETURN_NONE;
  });
}

// ---- call -------------------------------------------------------------------------------------------------------------------------------------

// torch.compiler's flag that is set while something exports or compiles the program.
bool being_compiled() {
  static PyObject* dictionary = nullptr;
  static PyObject* flag = nullptr;
  if (dictionary == nullptr) {
    const Ref module = Ref::steal(PyImport_ImportModule("torch.compiler"));
    flag = interned("_is_compiling_flag").release();
    dictionary = Ref::borrow(PyModule_GetDict(module.get())).release();
  }
  PyObject* value = PyDict_GetItemWithError(dictionary, flag);
  if (value == nullptr) clear_ordinary_exception();
  return value == Py_True;
}

bool state_fits(const InstalledVariant& variant) {
  if (variant.training && (!grad_mode_enabled() || saved_tensor_hooks_active())) return false;
  return variant.guards->implicit_state_holds();
}

// What the guards do not say about the fetched inputs: gradients that would be lost, inference tensors that cannot be saved or changed.
bool values_fit(const InstalledVariant& variant, const Frame& frame) {
  const bool grad_enabled = grad_mode_enabled();
  if (variant.training) {
    if (grad_enabled != variant.grad_enabled) return false;
  } else if (grad_enabled && !variant.grad_enabled) {
    for (size_t i = 0; i < variant.input_count; ++i) {
      const at::Tensor* tensor = variant.is_number[i] ? nullptr : tensor_of(variant.guards->fetched(frame, i));
      if (tensor != nullptr && tensor->requires_grad()) return false;
    }
  } else if (!grad_enabled && variant.grad_enabled && variant.outputs_require_grad) {
    return false;
  }
  if ((!variant.training && variant.mutated.empty()) || inference_mode_enabled()) return true;
  const auto is_inference = [&](size_t i) {
    const at::Tensor* tensor = variant.is_number[i] ? nullptr : tensor_of(variant.guards->fetched(frame, i));
    return tensor != nullptr && tensor->is_inference();
  };
  for (size_t i = 0; variant.training && i < variant.input_count; ++i) {
    if (is_inference(i)) return false;
  }
  for (const size_t i : variant.mutated) {
    if (is_inference(i)) return false;
  }
  return true;
}

Ref list_of(const InstalledVariant& variant, const Frame& frame, size_t first, size_t count) {
  Ref list = Ref::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Ref::borrow(variant.guards->fetched(frame, first + i)).release());
  }
  return list;
}

Ref argument_tuple(const Frame& frame) {
  Ref tuple = Ref::steal(PyTuple_New(frame.argument_count));
  for (Py_ssize_t i = 0; i < frame.argument_count; ++i) PyTuple_SET_ITEM(tuple.get(), i, Ref::borrow(frame.arguments[i]).release());
  return tuple;
}

// The Python exception that is set, as an object; it is not set any more.
Ref take_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return Ref::steal(value);
}

// Compiled code failed before it changed anything: `region.failed(arguments, exception)` runs the eager body. The Python exception is set.
PyObject* report_failure(StubObject* stub, const Frame& frame) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonErrorSet{};
  const Ref exception = take_exception(), arguments = argument_tuple(frame), name = interned("failed");
  return Ref::steal(PyObject_CallMethodObjArgs(stub->region, name.get(), arguments.get(), exception.get(), nullptr)).release();
}

PyObject* epilogue_result(const InstalledVariant& variant, const Frame& frame, Run& run) {
  const Ref inputs = list_of(variant, frame, 0, variant.input_count), fetched = list_of(variant, frame, variant.input_count, variant.fetch_count);
  const size_t output_count = variant.graph->output_count();
  const Ref outputs = Ref::steal(PyList_New(static_cast<Py_ssize_t>(output_count)));
  for (size_t i = 0; i < output_count; ++i) PyList_SET_ITEM(outputs.get(), static_cast<Py_ssize_t>(i), variant.graph->output(run, i, true));
  const Ref symbols = Ref::steal(PyDict_New());
  for (const InstalledVariant::Symbol& symbol : variant.symbols) {
    PyObject* input = variant.guards->fetched(frame, symbol.input);
    const at::Tensor* tensor = tensor_of(input);
    const bool in_shape = symbol.dimension >= 0 && tensor != nullptr && symbol.dimension < tensor->dim();
    PyObject* number = in_shape ? PyLong_FromLongLong(tensor->sizes()[static_cast<size_t>(symbol.dimension)]) : PyNumber_Long(input);
    const Ref size = Ref::steal(number);
    if (PyDict_SetItem(symbols.get(), symbol.name.get(), size.get()) < 0) throw PythonErrorSet{};
  }
  PyObject* const arguments[] = {inputs.get(), outputs.get(), symbols.get(), fetched.get()};
  return Ref::steal(PyObject_Vectorcall(variant.epilogue.get(), arguments, 4, nullptr)).release();
}

PyObject* result_of(const InstalledVariant& variant, const Frame& frame, Run& run) {
  if (!variant.has_result) return epilogue_result(variant, frame, run);
  if (!variant.result_is_tuple) return variant.graph->output(run, static_cast<size_t>(variant.result[0]), true);
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(variant.result.size())));
  for (size_t i = 0; i < variant.result.size(); ++i) {
    const auto index = static_cast<size_t>(variant.result[i]);
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), variant.graph->output(run, index, !variant.result_repeats));
  }
  return tuple.release();
}

void count_hit(StubObject* stub) { stub->hits.fetch_add(1, std::memory_order_relaxed); }

using Inputs = c10::SmallVector<InputValue, 16>;

// False if an input is of a class that no guard excluded.
bool read_inputs(const InstalledVariant& variant, const Frame& frame, Inputs& inputs) {
  inputs.resize(variant.input_count);
  for (size_t i = 0; i < variant.input_count; ++i) {
    if (!read_input(variant.guards->fetched(frame, i), inputs[i]) || (inputs[i].tensor == nullptr) != variant.is_number[i]) return false;
  }
  return true;
}

PyObject* run_graph(StubObject* stub, const InstalledVariant& variant, const Frame& frame, const Inputs& inputs) {
  Run run;
  bool failed = false;
  try {
    variant.graph->execute(inputs.data(), run);
  } catch (const KernelFailure&) {
    run.gil.reset();
    set_current_exception();
    failed = true;
  } catch (...) {
    run.gil.reset();
    if (!variant.mutated.empty()) throw;
    set_current_exception();
    failed = true;
  }
  if (failed) return report_failure(stub, frame);
  for (const size_t i : variant.mutated) {
    if (inputs[i].tensor != nullptr && !inputs[i].tensor->is_inference()) inputs[i].tensor->unsafeGetTensorImpl()->bump_version();
  }
  PyObject* result = result_of(variant, frame, run);
  count_hit(stub);
  return result;
}

// The Python path behind the guards. It raises the runtime's `Failed` where the eager body is to run.
PyObject* run_python(StubObject* stub, const InstalledVariant& variant, const Frame& frame) {
  const Ref list = list_of(variant, frame, 0, variant.input_count + variant.fetch_count);
  const Ref values = Ref::steal(PyList_AsTuple(list.get()));
  PyObject* result = PyObject_CallOneArg(variant.run.get(), values.get());
  if (result != nullptr) {
    count_hit(stub);
    return result;
  }
  if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonErrorSet{};
  Ref exception = take_exception();
  const char* name = Py_TYPE(exception.get())->tp_name;
  const char* dot = std::strrchr(name, '.');
  const bool failed = std::string(dot != nullptr ? dot + 1 : name) == "Failed";
  if (failed) {
    if (PyObject* cause = PyException_GetCause(exception.get())) exception = Ref::steal(cause);
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  if (!failed) throw PythonErrorSet{};
  return report_failure(stub, frame);
}

PyObject* call_region(StubObject* stub, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  return Ref::steal(PyObject_Vectorcall(stub->region_call, arguments, flags & ~PY_VECTORCALL_ARGUMENTS_OFFSET, keywords)).release();
}

PyObject* call_stub(StubObject* stub, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  const std::vector<InstalledVariant>* variants = stub->variants;
  const bool wanted = stub->enabled.load(std::memory_order_relaxed) && current_stance.load(std::memory_order_relaxed) != kForceEager;
  const bool positional = keywords == nullptr || PyTuple_GET_SIZE(keywords) == 0;
  const bool plain = variants != nullptr && wanted && positional && ambient_is_ordinary() && !being_compiled();
  if (!plain) return call_region(stub, arguments, flags, keywords);
  Frame frame(arguments, PyVectorcall_NARGS(flags));
  for (const InstalledVariant& variant : *variants) {
    if (variant.guards == nullptr || (variant.graph == nullptr && !variant.training)) break;
    if (!state_fits(variant) || variant.guards->check(frame) != GuardSet::kHolds || !values_fit(variant, frame)) continue;
    // Outputs that must come out requiring grad although no graph makes their history are marked by the Python path.
    const bool python = variant.graph == nullptr || variant.training || (variant.grad_enabled && variant.outputs_require_grad);
    Inputs inputs;
    if (!python && !read_inputs(variant, frame, inputs)) break;
    stub->calls.fetch_add(1, std::memory_order_relaxed);
    return python ? run_python(stub, variant, frame) : run_graph(stub, variant, frame, inputs);
  }
  return call_region(stub, arguments, flags, keywords);
}

PyObject* stub_vectorcall(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* keywords) {
  return guarded([&] { return call_stub(stub_of(self), arguments, flags, keywords); });
}

// ---- type -------------------------------------------------------------------------------------------------------------------------------------

PyObject* stub_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    if (PyTuple_GET_SIZE(arguments) != 1 || (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0)) fail(PyExc_TypeError, "expected Stub(region)");
    PyObject* region = PyTuple_GET_ITEM(arguments, 0);
    Ref region_call = Ref::steal(PyObject_GetAttrString(region, "call"));
    Ref self = Ref::steal(type->tp_alloc(type, 0));
    StubObject* stub = stub_of(self.get());
    stub->vectorcall = stub_vectorcall;
    stub->region = Ref::borrow(region).release();
    stub->region_call = region_call.release();
    stub->retired = new std::vector<std::vector<InstalledVariant>*>();
    stub->enabled.store(true);
    return self.release();
  });
}

int traverse_variants(const std::vector<InstalledVariant>* variants, visitproc visit, void* arg) {
  if (variants == nullptr) return 0;
  for (const InstalledVariant& variant : *variants) {
    for (const Ref* reference : {&variant.guards_object, &variant.graph_object, &variant.epilogue, &variant.run}) {
      if (const int status = reference->traverse(visit, arg)) return status;
    }
  }
  return 0;
}

int stub_traverse(PyObject* self, visitproc visit, void* arg) {
  StubObject* stub = stub_of(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(stub->region);
  Py_VISIT(stub->region_call);
  if (const int status = traverse_variants(stub->variants, visit, arg)) return status;
  if (stub->retired == nullptr) return 0;
  for (const std::vector<InstalledVariant>* variants : *stub->retired) {
    if (const int status = traverse_variants(variants, visit, arg)) return status;
  }
  return 0;
}

// Breaks cycles; the region itself is kept, so that a call from a finalizer still works.
int stub_clear(PyObject* self) {
  StubObject* stub = stub_of(self);
  delete std::exchange(stub->variants, nullptr);
  if (stub->retired != nullptr) {
    for (std::vector<InstalledVariant>* variants : *stub->retired) delete variants;
    stub->retired->clear();
  }
  return 0;
}

void stub_dealloc(PyObject* self) {
  StubObject* stub = stub_of(self);
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  stub_clear(self);
  delete stub->retired;
  Py_CLEAR(stub->region_call);
  Py_CLEAR(stub->region);
  type->tp_free(self);
  Py_DECREF(type);
}

// Names and whatever else one asks of a function come from the region.
PyObject* stub_getattr(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(stub_of(self)->region, name);
}

PyObject* stub_repr(PyObject* self) { return PyObject_Repr(stub_of(self)->region); }
PyObject* get_calls(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(stub_of(self)->calls.load(std::memory_order_relaxed)); }
PyObject* get_hits(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(stub_of(self)->hits.load(std::memory_order_relaxed)); }
PyObject* get_region(PyObject* self, void*) { return Ref::borrow(stub_of(self)->region).release(); }
PyObject* get_enabled(PyObject* self, void*) { return PyBool_FromLong(stub_of(self)->enabled.load()); }

int set_enabled(PyObject* self, PyObject* value, void*) {
  const int truth = value != nullptr ? PyObject_IsTrue(value) : -1;
  if (truth < 0) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_AttributeError, "cannot delete enabled");
    return -1;
  }
  stub_of(self)->enabled.store(truth == 1);
  return 0;
}

PyMethodDef stub_methods[] = {{"install", stub_install, METH_O, "install(variants: list of dicts): see PROTOCOL.md"}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef stub_properties[] = {{"calls", get_calls, nullptr, "calls that a variant took", nullptr},
                                 {"hits", get_hits, nullptr, "of those, the ones that came to their end", nullptr},
                                 {"region", get_region, nullptr, "the Python region", nullptr},
                                 {"enabled", get_enabled, set_enabled, "False: every call goes to region.call", nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef stub_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(StubObject, vectorcall), READONLY, nullptr}, {nullptr, 0, 0, 0, nullptr}};
PyType_Slot stub_slots[] = {{Py_tp_new, reinterpret_cast<void*>(stub_new)},
                            {Py_tp_dealloc, reinterpret_cast<void*>(stub_dealloc)},
                            {Py_tp_traverse, reinterpret_cast<void*>(stub_traverse)},
                            {Py_tp_clear, reinterpret_cast<void*>(stub_clear)},
                            {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                            {Py_tp_getattro, reinterpret_cast<void*>(stub_getattr)},
                            {Py_tp_repr, reinterpret_cast<void*>(stub_repr)},
                            {Py_tp_methods, stub_methods},
                            {Py_tp_getset, stub_properties},
                            {Py_tp_members, stub_members},
                            {Py_tp_doc, const_cast<char*>("Stub(region): the callable of a region")},
                            {0, nullptr}};
constexpr unsigned long kStubFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
PyType_Spec stub_spec = {"_aotcompile_native.Stub", sizeof(StubObject), 0, kStubFlags, stub_slots};

}  // namespace

PyTypeObject* make_stub_type(PyObject*) {
  Ref type = Ref::steal(PyType_FromSpec(&stub_spec));
  // What aotcompile.runtime.digest looks for on the class of a stub.
  if (PyObject_SetAttrString(type.get(), "__aotcompile_stub__", Py_True) < 0) throw PythonErrorSet{};
  return reinterpret_cast<PyTypeObject*>(type.release());
}

void set_stance(int stance) { current_stance.store(stance, std::memory_order_relaxed); }

}  // namespace aotcompile
