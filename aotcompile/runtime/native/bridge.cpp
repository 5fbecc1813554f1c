// See include/bridge.h. Checked on torch 2.11 to 2.14.
#include "include/bridge.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

namespace aotcompile {

const at::Tensor* tensor_of(PyObject* object) {
  return THPVariable_CheckExact(object) ? &THPVariable_Unpack(object) : nullptr;
}

bool is_torch_constant(PyObject* object) {
  return THPDtype_Check(object) || THPDevice_Check(object) || THPLayout_Check(object) || THPMemoryFormat_Check(object);
}

PyObject* wrap_tensor(at::Tensor&& tensor) { return Ref::steal(THPVariable_Wrap(std::move(tensor))).release(); }

void set_python_exception(std::exception_ptr exception) {
  try {
    std::rethrow_exception(exception);
  } catch (PythonErrorSet&) {
    return;
  } catch (python_error& error) {
    error.restore();
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

bool deterministic_algorithms() { return at::globalContext().deterministicAlgorithms(); }

bool forward_level_open() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }

c10::ScalarType autocast_dtype(c10::DeviceType device) { return at::autocast::get_autocast_dtype(device); }

}  // namespace aotcompile
