// The calling thread's torch state: is this an ordinary call (no modes, transforms or tracing around it), and single facts for `state` guards.
#pragma once

namespace aotcompile {

// True if nothing around the call wants to see the single operations: no dispatch or function modes, functorch transforms, jit tracing or Python
// dispatcher. (Forward-mode differentiation shows in the tensors: tensor_guard.cpp. Saved-tensor hooks count only for variants that save tensors.)
bool ambient_is_ordinary();
bool saved_tensor_hooks_active();

bool grad_mode_enabled();
bool inference_mode_enabled();
bool autocast_cpu_enabled();
bool autocast_cuda_enabled();

}  // namespace aotcompile
