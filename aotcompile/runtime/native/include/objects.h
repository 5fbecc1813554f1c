// The module's Python types (Guards, Graph, Stub) and what they share.
#pragma once

#include "graph.h"
#include "guard.h"

namespace aotcompile {

struct GuardsObject {
  PyObject_HEAD
  GuardSet* set;
};

struct GraphObject {
  PyObject_HEAD
  Graph* graph;
};

extern PyTypeObject* guards_type;
extern PyTypeObject* graph_type;
extern PyObject* kernel_failure;  // the exception class KernelFailure(kernel name, status)

PyTypeObject* make_stub_type(PyObject* module);
void set_stance(int stance);  // 0 default, 1 force_eager, 2 error_on_miss

// For a catch (...) block at the border to Python: sets the Python exception for the C++ exception in flight.
void set_current_exception();

// Calls `body` and turns C++ exceptions into Python ones.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (...) {
    set_current_exception();
    return nullptr;
  }
}

// A graph input from a Python object: a tensor, int or float. False for anything else.
bool read_input(PyObject* object, InputValue& input);

}  // namespace aotcompile
