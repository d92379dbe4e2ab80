#include "base/json_places.h"

#include <gtest/gtest.h>

#include <string>

namespace tactus {
namespace {

TEST(JsonPlaces, PointersHaveTheTargetsOfNlohmann) {
  Json document = Json::parse(R"({"a": [1, {"b": null}], "~": {"/": 2}, "": {"": 3}, "$defs": {}})");
  for (int i = 0; i < 100; ++i) document["$defs"]["d" + std::to_string(i)] = i;
  JsonPlaces places(document);
  for (const char* pointer : {"", "/a", "/a/0", "/a/1/b", "/~0/~1", "/", "//", "/$defs/d0", "/$defs/d99"})
    EXPECT_EQ(places.At(pointer), &document.at(Json::json_pointer(pointer))) << pointer;
  for (const char* pointer : {"a", "/a/2", "/a/-", "/a/00", "/a/1/b/c", "/a/x", "/~", "/~2", "/$defs/d100", "/b",
                              "/a/99999999999999999999"}) {
    EXPECT_EQ(places.At(pointer), nullptr) << pointer;
  }
}

TEST(JsonPlaces, MembersAreFoundInSmallAndLargeObjects) {
  for (const int count : {3, 1000}) {
    Json object = Json::object();
    for (int i = 0; i < count; ++i) object.get_ref<Json::object_t&>().emplace_back(std::to_string(i), i);
    JsonPlaces places(object);
    EXPECT_EQ(*places.Member(object, std::to_string(count - 1)), count - 1);
    EXPECT_EQ(places.Member(object, std::to_string(count)), nullptr);
    EXPECT_EQ(places.Member(*places.Member(object, "0"), "0"), nullptr);
  }
}

}  // namespace
}  // namespace tactus
