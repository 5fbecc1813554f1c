// The module `_aotcompile_native`: the types Guards and Graph, the stance, the exception KernelFailure. Protocol: aotcompile/runtime/PROTOCOL.md.
#include "include/bridge.h"
#include "include/objects.h"

namespace aotcompile {

PyTypeObject* guards_type = nullptr;
PyTypeObject* graph_type = nullptr;
PyObject* kernel_failure = nullptr;

namespace {

constexpr int kProtocol = 1;

void set_kernel_failure(const KernelFailure& failure) {
  PyObject* arguments = Py_BuildValue("(si)", failure.kernel.c_str(), failure.status);
  if (arguments == nullptr) return;
  PyErr_SetObject(kernel_failure, arguments);
  Py_DECREF(arguments);
}

void require_arguments(PyObject* arguments, PyObject* keywords, Py_ssize_t count, const char* what) {
  if (PyTuple_GET_SIZE(arguments) != count || (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0)) {
    fail(PyExc_TypeError, std::string("expected ") + what);
  }
}

// ---- Guards(guards, fetch, context) ---------------------------------------------------------------------------------------------------------

PyObject* guards_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    require_arguments(arguments, keywords, 3, "Guards(guards, fetch, context)");
    auto set = std::make_unique<GuardSet>(PyTuple_GET_ITEM(arguments, 0), PyTuple_GET_ITEM(arguments, 1), PyTuple_GET_ITEM(arguments, 2));
    Ref self = Ref::steal(type->tp_alloc(type, 0));
    reinterpret_cast<GuardsObject*>(self.get())->set = set.release();
    return self.release();
  });
}

int guards_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const GuardSet* set = reinterpret_cast<GuardsObject*>(self)->set;
  return set != nullptr ? set->traverse(visit, arg) : 0;
}

int guards_clear(PyObject* self) {
  if (GuardSet* set = reinterpret_cast<GuardsObject*>(self)->set) set->clear();
  return 0;
}

void guards_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  delete reinterpret_cast<GuardsObject*>(self)->set;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* guards_check(PyObject* self, PyObject* arguments) {
  return guarded([&]() -> PyObject* {
    if (!PyTuple_Check(arguments)) fail(PyExc_TypeError, "check() takes the tuple of the region's arguments");
    GuardSet& set = *reinterpret_cast<GuardsObject*>(self)->set;
    Frame frame(&PyTuple_GET_ITEM(arguments, 0), PyTuple_GET_SIZE(arguments));
    const int failed = set.check(frame);
    if (failed != GuardSet::kHolds) return PyLong_FromLong(failed);
    Ref values = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(set.fetch_count())));
    for (size_t i = 0; i < set.fetch_count(); ++i) {
      PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), Ref::borrow(set.fetched(frame, i)).release());
    }
    return values.release();
  });
}

PyObject* guards_remembered(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(reinterpret_cast<GuardsObject*>(self)->set->remembered()); }

PyGetSetDef guards_attributes[] = {{"remembered", guards_remembered, nullptr, "How many checks found nothing changed since an earlier one.", nullptr},
                                   {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef guards_methods[] = {
    {"check", guards_check, METH_O, "check(arguments: tuple) -> tuple of fetched values, or the int index of the first guard that does not hold"},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot guards_slots[] = {{Py_tp_new, reinterpret_cast<void*>(guards_new)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(guards_dealloc)},
                              {Py_tp_traverse, reinterpret_cast<void*>(guards_traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(guards_clear)},
                              {Py_tp_methods, guards_methods},
                              {Py_tp_getset, guards_attributes},
                              {Py_tp_doc, const_cast<char*>("Guards(guards, fetch, context): a variant's guards and the paths of its inputs")},
                              {0, nullptr}};
PyType_Spec guards_spec = {"_aotcompile_native.Guards", sizeof(GuardsObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, guards_slots};

// ---- Graph(graph, kernels) ------------------------------------------------------------------------------------------------------------------

PyObject* graph_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    require_arguments(arguments, keywords, 2, "Graph(graph, kernels)");
    auto graph = std::make_unique<Graph>(PyTuple_GET_ITEM(arguments, 0), PyTuple_GET_ITEM(arguments, 1));
    Ref self = Ref::steal(type->tp_alloc(type, 0));
    reinterpret_cast<GraphObject*>(self.get())->graph = graph.release();
    return self.release();
  });
}

void graph_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<GraphObject*>(self)->graph;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* graph_call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    require_arguments(arguments, keywords, 1, "graph(inputs)");
    const Graph& graph = *reinterpret_cast<GraphObject*>(self)->graph;
    // A tuple of our own: the GIL is released below and a list could change meanwhile.
    const Ref values = Ref::steal(PySequence_Tuple(PyTuple_GET_ITEM(arguments, 0)));
    if (PyTuple_GET_SIZE(values.get()) != static_cast<Py_ssize_t>(graph.input_count())) {
      const std::string wanted = std::to_string(graph.input_count()), given = std::to_string(PyTuple_GET_SIZE(values.get()));
      fail(PyExc_ValueError, "the graph takes " + wanted + " inputs, not " + given);
    }
    c10::SmallVector<InputValue, 16> inputs(graph.input_count());
    for (size_t i = 0; i < inputs.size(); ++i) {
      PyObject* value = PyTuple_GET_ITEM(values.get(), static_cast<Py_ssize_t>(i));
      if (!read_input(value, inputs[i])) fail(PyExc_TypeError, "graph input " + std::to_string(i) + " is a " + Py_TYPE(value)->tp_name);
    }
    Run run;
    graph.execute(inputs.data(), run);
    Ref result = Ref::steal(PyList_New(static_cast<Py_ssize_t>(graph.output_count())));
    for (size_t i = 0; i < graph.output_count(); ++i) PyList_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), graph.output(run, i, true));
    return result.release();
  });
}

PyType_Slot graph_slots[] = {{Py_tp_new, reinterpret_cast<void*>(graph_new)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(graph_dealloc)},
                             {Py_tp_call, reinterpret_cast<void*>(graph_call)},
                             {Py_tp_doc, const_cast<char*>("Graph(graph, kernels): a plan graph; graph(inputs) -> list of outputs")},
                             {0, nullptr}};
PyType_Spec graph_spec = {"_aotcompile_native.Graph", sizeof(GraphObject), 0, Py_TPFLAGS_DEFAULT, graph_slots};

// ---- module -----------------------------------------------------------------------------------------------------------------------------------

PyObject* module_set_stance(PyObject*, PyObject* stance) {
  return guarded([&]() -> PyObject* {
    set_stance(static_cast<int>(integer_of(stance)));
    Py_RETURN_NONE;
  });
}

PyObject* module_after_fork(PyObject*, PyObject*) {
  mark_forked();
  Py_RETURN_NONE;
}

PyMethodDef module_methods[] = {{"set_stance", module_set_stance, METH_O, "0 default, 1 force_eager, 2 error_on_miss"},
                                {"after_fork", module_after_fork, METH_NOARGS, "for a forked child: kernels run with one thread there"},
                                {nullptr, nullptr, 0, nullptr}};
PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "_aotcompile_native", "Guards, graphs and stubs of aotcompile's runtime in native code.", -1,
                                 module_methods, nullptr, nullptr, nullptr, nullptr};

void add(PyObject* module, const char* name, PyObject* value) {
  if (PyModule_AddObjectRef(module, name, value) < 0) throw PythonErrorSet{};
}

}  // namespace

void set_current_exception() {
  try {
    throw;
  } catch (const PythonErrorSet&) {
  } catch (const KernelFailure& failure) {
    set_kernel_failure(failure);
  } catch (const GraphError& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (const ExpressionError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (...) {
    set_python_exception(std::current_exception());
  }
}

bool read_input(PyObject* object, InputValue& input) {
  input.tensor = tensor_of(object);
  if (input.tensor != nullptr) return input.tensor->defined();
  if (PyFloat_CheckExact(object)) {
    input.is_float = true;
    input.real = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (!PyLong_CheckExact(object)) return false;
  int overflow = 0;
  input.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
  return overflow == 0;
}

}  // namespace aotcompile

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__aotcompile_native() {
  using namespace aotcompile;
  return guarded([]() -> PyObject* {
    Ref module = Ref::steal(PyModule_Create(&module_definition));
    guards_type = reinterpret_cast<PyTypeObject*>(Ref::steal(PyType_FromSpec(&guards_spec)).release());
    graph_type = reinterpret_cast<PyTypeObject*>(Ref::steal(PyType_FromSpec(&graph_spec)).release());
    kernel_failure = Ref::steal(PyErr_NewExceptionWithDoc("_aotcompile_native.KernelFailure", "A kernel stopped: (kernel name, status).",
                                                          PyExc_RuntimeError, nullptr)).release();
    add(module.get(), "Guards", reinterpret_cast<PyObject*>(guards_type));
    add(module.get(), "Graph", reinterpret_cast<PyObject*>(graph_type));
    add(module.get(), "Stub", reinterpret_cast<PyObject*>(make_stub_type(module.get())));
    add(module.get(), "KernelFailure", kernel_failure);
    if (PyModule_AddIntConstant(module.get(), "PROTOCOL", kProtocol) < 0) throw PythonErrorSet{};
    return module.release();
  });
}
