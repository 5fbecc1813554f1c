// Parser (recursive descent over Python's precedence levels) and stack machine. See include/expression.h.
#include "include/expression.h"

#include <algorithm>
#include <cctype>

namespace aotcompile {

int SymbolTable::find(const std::string& name) const {
  const auto place = std::find(names_.begin(), names_.end(), name);
  return place == names_.end() ? -1 : static_cast<int>(place - names_.begin());
}

int SymbolTable::add(const std::string& name) {
  const int index = find(name);
  if (index >= 0) return index;
  names_.push_back(name);
  return size() - 1;
}

namespace {

using Code = Expression::Code;
using Program = std::vector<Expression::Instruction>;

class Parser {
 public:
  Parser(const std::string& text, SymbolTable& symbols) : text_(text), symbols_(symbols) {}

  Program parse() {
    disjunction();
    skip_spaces();
    if (position_ != text_.size()) error();
    return std::move(program_);
  }

 private:
  [[noreturn]] void error() const { throw ExpressionError("not a size expression: " + text_); }
  void emit(Code code, int64_t operand = 0) { program_.push_back({code, operand}); }

  void skip_spaces() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_]))) ++position_;
  }

  static bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  bool accept(const std::string& token) {
    skip_spaces();
    if (text_.compare(position_, token.size(), token) != 0) return false;
    const size_t end = position_ + token.size();
    if (is_name(token[0]) && end < text_.size() && is_name(text_[end])) return false;
    position_ = end;
    return true;
  }

  void disjunction() {
    conjunction();
    while (accept("or")) {
      conjunction();
      emit(Code::Or);
    }
  }

  void conjunction() {
    negation();
    while (accept("and")) {
      negation();
      emit(Code::And);
    }
  }

  void negation() {
    if (accept("not")) {
      negation();
      emit(Code::Not);
    } else {
      comparison();
    }
  }

  bool comparison_operator(Code& code) {
    static const std::pair<const char*, Code> operators[] = {{"==", Code::Equal},     {"!=", Code::NotEqual}, {"<=", Code::LessEqual},
                                                             {">=", Code::GreaterEqual}, {"<", Code::Less},   {">", Code::Greater}};
    for (const auto& [token, value] : operators) {
      if (accept(token)) {
        code = value;
        return true;
      }
    }
    return false;
  }

  // a < b < c  is  (a < b) and (b < c): the middle operand's program is repeated, it has no side effects.
  void comparison() {
    sum();
    Code code;
    if (!comparison_operator(code)) return;
    size_t start = program_.size();
    sum();
    Program middle(program_.begin() + static_cast<std::ptrdiff_t>(start), program_.end());
    emit(code);
    while (comparison_operator(code)) {
      program_.insert(program_.end(), middle.begin(), middle.end());
      start = program_.size();
      sum();
      middle.assign(program_.begin() + static_cast<std::ptrdiff_t>(start), program_.end());
      emit(code);
      emit(Code::And);
    }
  }

  void sum() {
    product();
    while (true) {
      if (accept("+")) {
        product();
        emit(Code::Add);
      } else if (accept("-")) {
        product();
        emit(Code::Subtract);
      } else {
        return;
      }
    }
  }

  void product() {
    unary();
    while (true) {
      if (accept("//")) {
        unary();
        emit(Code::FloorDivide);
      } else if (accept("*")) {
        unary();
        emit(Code::Multiply);
      } else if (accept("%")) {
        unary();
        emit(Code::Modulo);
      } else {
        return;
      }
    }
  }

  void unary() {
    if (accept("-")) {
      unary();
      emit(Code::Negate);
    } else {
      primary();
    }
  }

  void primary() {
    if (accept("(")) {
      disjunction();
      if (!accept(")")) error();
      return;
    }
    skip_spaces();
    const size_t start = position_;
    while (position_ < text_.size() && is_name(text_[position_])) ++position_;
    const std::string token = text_.substr(start, position_ - start);
    if (token.empty()) error();
    if (std::isdigit(static_cast<unsigned char>(token[0]))) return integer(token);
    if (token == "True" || token == "False") return emit(Code::Integer, token == "True");
    if (token == "min") return call(Code::Minimum);
    if (token == "max") return call(Code::Maximum);
    if (token == "or" || token == "and" || token == "not") error();
    emit(Code::Symbol, symbols_.add(token));
  }

  void integer(const std::string& token) {
    if (!std::all_of(token.begin(), token.end(), [](unsigned char c) { return std::isdigit(c); })) error();
    try {
      emit(Code::Integer, std::stoll(token));
    } catch (const std::out_of_range&) {
      error();
    }
  }

  void call(Code code) {
    if (!accept("(")) error();
    disjunction();
    while (accept(",")) {
      disjunction();
      emit(code);
    }
    if (!accept(")")) error();
  }

  const std::string& text_;
  SymbolTable& symbols_;
  size_t position_ = 0;
  Program program_;
};

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw ExpressionError("division by zero in a size expression");
  if (b == -1) return -a;
  const int64_t quotient = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t apply(Code code, int64_t a, int64_t b) {
  switch (code) {
    case Code::Add: return a + b;
    case Code::Subtract: return a - b;
    case Code::Multiply: return a * b;
    case Code::FloorDivide: return floor_divide(a, b);
    case Code::Modulo: return a - floor_divide(a, b) * b;
    case Code::Minimum: return std::min(a, b);
    case Code::Maximum: return std::max(a, b);
    case Code::Equal: return a == b;
    case Code::NotEqual: return a != b;
    case Code::Less: return a < b;
    case Code::LessEqual: return a <= b;
    case Code::Greater: return a > b;
    case Code::GreaterEqual: return a >= b;
    case Code::And: return a && b;
    case Code::Or: return a || b;
    default: throw ExpressionError("unknown instruction");
  }
}

constexpr int kStackSize = 64;

}  // namespace

Expression Expression::parse(const std::string& text, SymbolTable& symbols) {
  Expression result;
  Program program = Parser(text, symbols).parse();
  int depth = 0;
  bool uses_symbols = false;
  for (const Instruction& instruction : program) {
    const bool pushes = instruction.code == Code::Integer || instruction.code == Code::Symbol;
    const bool keeps = instruction.code == Code::Negate || instruction.code == Code::Not;
    depth += pushes ? 1 : keeps ? 0 : -1;
    result.depth_ = std::max(result.depth_, depth);
    uses_symbols |= instruction.code == Code::Symbol;
  }
  if (result.depth_ > kStackSize) throw ExpressionError("size expression nests too deeply: " + text);
  if (program.size() == 1 && uses_symbols) {
    result.symbol_ = static_cast<int>(program[0].operand);
    return result;
  }
  result.program_ = std::move(program);
  if (!uses_symbols) {
    result.constant_ = result.execute(nullptr);
    result.program_.clear();
  }
  return result;
}

int64_t Expression::execute(const int64_t* symbols) const {
  int64_t stack[kStackSize];
  int top = -1;
  for (const Instruction& instruction : program_) {
    switch (instruction.code) {
      case Code::Integer: stack[++top] = instruction.operand; break;
      case Code::Symbol: stack[++top] = symbols[instruction.operand]; break;
      case Code::Negate: stack[top] = -stack[top]; break;
      case Code::Not: stack[top] = !stack[top]; break;
      default:
        stack[top - 1] = apply(instruction.code, stack[top - 1], stack[top]);
        --top;
    }
  }
  return stack[0];
}

std::vector<int> Expression::used_symbols() const {
  std::vector<int> result;
  if (symbol_ >= 0) result.push_back(symbol_);
  for (const Instruction& instruction : program_) {
    if (instruction.code == Code::Symbol) result.push_back(static_cast<int>(instruction.operand));
  }
  return result;
}

}  // namespace aotcompile
