// One object of a JSON data file, read member by member. The first fault is kept with its place; later reads return
// values within their bounds, so that a reader checks once, at its end.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "tactus/status.h"

namespace tactus::cost {

using Knots = std::vector<std::pair<double, double>>;  // strictly rising first members, positive second members

class JsonRecord {
 public:
  // Reads the document's one object. kDataLoss: `name`, the place in it and the fault: invalid JSON, a member that is
  // missing, of another type, out of bounds, or not read by `read` ("optional" may contain anything).
  static Status Read(std::string_view text, const std::string& name, const std::function<void(JsonRecord&)>& read);

  bool Has(const char* key);
  std::string Text(const char* key);
  double Number(const char* key, double least, double most);
  int64_t Integer(const char* key, int64_t least, int64_t most);
  bool Flag(const char* key, bool otherwise);  // `otherwise` if absent
  Knots Pairs(const char* key);                // [[x, y], ...]
  std::vector<std::string> Texts(const char* key);
  std::string Object(const char* key);  // an object, as JSON text
  // The objects of an array; none if the member is absent.
  void Each(const char* key, const std::function<void(JsonRecord&)>& read);

 private:
  JsonRecord(const Json* json, std::string where, Status* fault)
      : json_(json), where_(std::move(where)), fault_(fault) {}
  const Json* Find(const char* key);
  const Json* Need(const char* key, const char* what, bool (Json::*is)() const noexcept);
  double Bounded(const Json& json, const std::string& place, double least, double most);
  void Fail(const std::string& place, const std::string& why);
  void RefuseOthers();

  const Json* json_;
  std::string where_;  // "h100.cost.json: gemm[3]"
  Status* fault_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace tactus::cost
