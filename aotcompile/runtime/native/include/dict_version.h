// Whether a dictionary is as it was when it was last looked at, without looking into it.
#pragma once

#include "object.h"

#include <memory>

namespace aotcompile {

// CPython 3.11 and 3.12 number every change of any dictionary (PEP 509): two equal numbers mean the same dictionary with the same contents, even if
// another one took the memory of the first in between. CPython 3.13 has no such number; there the interpreter calls back for each change of a
// dictionary that is watched (`PyDict_Watch`), and the callback counts. Attributes that are kept in the object itself, as of most small objects there,
// are changed without a call (seen with CPython 3.13.0); their dictionaries never count as unchanged.
class DictVersion {
 public:
  // False where the interpreter has no watcher left; no `DictVersion` may be made then.
  static bool available();

  DictVersion() = default;
  explicit DictVersion(PyObject* dictionary);  // throws PythonErrorSet
  // `dictionary` is the one that this was made from, and alive, or something that took its memory.
  bool unchanged() const { return *counter_ == seen_; }
  void renew();

 private:
  const uint64_t* counter_ = nullptr;
  uint64_t seen_ = 0;
#if PY_VERSION_HEX >= 0x030D0000
  std::shared_ptr<const uint64_t> owner_;  // the counter outlives the dictionary; empty: not watched
#endif
};

}  // namespace aotcompile
