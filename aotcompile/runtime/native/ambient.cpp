// See include/ambient.h. Nearly everything is in the thread's included and excluded dispatch keys: each mode, transform and tracer puts a key there.
#include "include/ambient.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "include/bridge.h"

namespace aotcompile {

bool grad_mode_enabled() { return c10::GradMode::is_enabled(); }

bool inference_mode_enabled() { return c10::InferenceMode::is_enabled(); }

namespace {

bool autocast_enabled(c10::DispatchKey key) { return !c10::impl::tls_local_dispatch_key_set().excluded_.has(key); }

}  // namespace

bool autocast_cpu_enabled() { return autocast_enabled(c10::DispatchKey::AutocastCPU); }

bool autocast_cuda_enabled() { return autocast_enabled(c10::DispatchKey::AutocastCUDA); }

bool saved_tensor_hooks_active() { return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty(); }

bool ambient_is_ordinary() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const uint64_t unusual_included = keys.included_.raw_repr() & ~c10::default_included_set.raw_repr();
  uint64_t usual_excluded = c10::default_excluded_set.raw_repr() | c10::autocast_dispatch_keyset.raw_repr();
  if (c10::InferenceMode::is_enabled()) usual_excluded |= c10::autograd_dispatch_keyset.raw_repr();
  const uint64_t unusual_excluded = keys.excluded_.raw_repr() & ~usual_excluded;
  return unusual_included == 0 && unusual_excluded == 0 && !c10::impl::dispatch_mode_enabled() && !at::impl::torch_function_mode_enabled() &&
         at::impl::PythonTorchFunctionTLS::get_disabled_state() == at::impl::TorchFunctionDisabledState::ENABLED;
}

}  // namespace aotcompile
