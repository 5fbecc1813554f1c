// The few things that need torch's Python-binding headers, which are slow to compile: bridge.cpp alone includes them.
#pragma once

#include "object.h"

#include <ATen/core/Tensor.h>

#include <exception>

namespace aotcompile {

// The tensor inside an object whose class is exactly torch.Tensor or torch.nn.Parameter; nullptr for anything else (subclasses have behaviour of
// their own).
const at::Tensor* tensor_of(PyObject* object);

// A torch.dtype, torch.device, torch.layout or torch.memory_format.
bool is_torch_constant(PyObject* object);

// A new reference to the tensor's Python object (the same object each time while one is alive); None for an undefined tensor.
PyObject* wrap_tensor(at::Tensor&& tensor);

// Sets the Python exception that torch's own bindings would set for this C++ exception.
void set_python_exception(std::exception_ptr exception);

// State of the calling thread that is hidden in heavy headers.
bool deterministic_algorithms();
bool forward_level_open();  // of forward-mode differentiation
c10::ScalarType autocast_dtype(c10::DeviceType device);

}  // namespace aotcompile
