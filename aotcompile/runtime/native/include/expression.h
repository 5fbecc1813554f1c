// Integer and boolean expressions over size symbols, compiled from their text form into programs for a small stack machine.
//
//     "4*s0 + 1"      ->  Symbol s0 | Integer 4 | Multiply | Integer 1 | Add
//     "s0 >= 2"       ->  Symbol s0 | Integer 2 | GreaterEqual
//
// Grammar: Python's `or and not`, (chained) comparisons, `+ - * // %`, unary `-`, integers, True, False, names, min(a, b, ...), max(a, b, ...).
// Division and remainder are Python's (floor). No Python and no torch here.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace aotcompile {

struct ExpressionError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The size symbols of a graph or of a variant's guards; a symbol is its index.
class SymbolTable {
 public:
  int find(const std::string& name) const;  // -1 if unknown
  int add(const std::string& name);         // index of an old or new symbol
  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int index) const { return names_[static_cast<size_t>(index)]; }

 private:
  std::vector<std::string> names_;
};

class Expression {
 public:
  Expression() = default;
  explicit Expression(int64_t value) : constant_(value) {}
  // Throws ExpressionError for text outside the grammar. Unknown names are added to `symbols`.
  static Expression parse(const std::string& text, SymbolTable& symbols);

  bool is_constant() const { return program_.empty() && symbol_ < 0; }
  int plain_symbol() const { return symbol_; }  // the symbol's index when the text is just its name, else -1
  int64_t constant() const { return constant_; }
  // Throws ExpressionError for a division by zero.
  int64_t evaluate(const int64_t* symbols) const {
    if (symbol_ >= 0) return symbols[symbol_];
    return program_.empty() ? constant_ : execute(symbols);
  }
  std::vector<int> used_symbols() const;

  enum class Code : uint8_t {
    Integer, Symbol, Negate, Add, Subtract, Multiply, FloorDivide, Modulo, Minimum, Maximum,
    Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, Not, And, Or
  };
  struct Instruction {
    Code code;
    int64_t operand;
  };

 private:
  int64_t execute(const int64_t* symbols) const;

  int64_t constant_ = 0;
  int symbol_ = -1;
  int depth_ = 0;
  std::vector<Instruction> program_;
};

}  // namespace aotcompile
