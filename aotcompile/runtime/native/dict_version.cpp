// See include/dict_version.h.
#include "include/dict_version.h"

#include <unordered_map>

namespace aotcompile {

#if PY_VERSION_HEX < 0x030D0000

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
bool DictVersion::available() { return true; }

DictVersion::DictVersion(PyObject* dictionary) : counter_(&reinterpret_cast<PyDictObject*>(dictionary)->ma_version_tag), seen_(*counter_) {}
#pragma GCC diagnostic pop

void DictVersion::renew() { seen_ = *counter_; }

#else

namespace {

// Of the watched dictionaries that are alive. Never destroyed: dictionaries may still die after static objects have.
std::unordered_map<PyObject*, std::shared_ptr<uint64_t>>& counters() {
  static auto* instance = new std::unordered_map<PyObject*, std::shared_ptr<uint64_t>>();
  return *instance;
}

// Called before a watched dictionary changes and when it is freed.
int count_change(PyDict_WatchEvent event, PyObject* dictionary, PyObject*, PyObject*) {
  const auto found = counters().find(dictionary);
  if (found == counters().end()) return 0;
  ++*found->second;
  if (event == PyDict_EVENT_DEALLOCATED) counters().erase(found);
  return 0;
}

int watcher() {
  static const int number = PyDict_AddWatcher(count_change);
  if (number < 0) PyErr_Clear();
  return number;
}

}  // namespace

bool DictVersion::available() { return watcher() >= 0; }

DictVersion::DictVersion(PyObject* dictionary) {
  static const uint64_t never = 1;  // is not the number that was seen
  counter_ = &never;
  if (reinterpret_cast<PyDictObject*>(dictionary)->ma_values != nullptr) return;
  std::shared_ptr<uint64_t>& counter = counters()[dictionary];
  if (counter == nullptr) {
    counter = std::make_shared<uint64_t>(0);
    if (PyDict_Watch(watcher(), dictionary) < 0) throw PythonErrorSet{};
  }
  owner_ = counter;
  counter_ = counter.get();
  seen_ = *counter_;
}

void DictVersion::renew() {
  if (owner_ != nullptr) seen_ = *counter_;
}

#endif

}  // namespace aotcompile
