// Options are plain structs whose fields are declared once: name, unit, range, help; the default is the member's
// initialiser. The command-line parser, --help, the TACTUS_* environment names, the TOML file, --print-config and the
// docs table are visitors over the same declaration:
//
//   struct EngineOptions {
//     int64_t max_num_seqs = 256;
//     template <class V> void VisitFields(V& v) {
//       v.Group("Scheduling");
//       v.Field("max-num-seqs", max_num_seqs, {.unit = "sequences", .min = 1, .max = 65536,
//               .help = "most sequences that hold KV at once"});
//     }
//   };
//
// A field's type is one of bool, int64_t, double, std::string, std::vector<std::string>, DurationText or BytesText
// below, or std::optional of a number, empty until given.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace tactus {

// Limits and description of a field.
struct FieldSpec {
  const char* unit = "";                                  // "tokens", "duration", "bytes"; shown in the help
  double min = -std::numeric_limits<double>::infinity();  // of a number, inclusive
  double max = std::numeric_limits<double>::infinity();
  bool infinite = false;  // a number that may be "inf"
  // "auto|float32|bfloat16"; empty: any. For a duration: words allowed instead, "auto" (kAutoDuration) and "none" (0).
  // With "none", a 0 is refused; without it, 0 is an ordinary duration.
  const char* choices = "";
  const char* alias = "";  // "token-budget" for max-num-batched-tokens
  const char* help = "";   // one clause; range and default are added to it
  bool secret = false;     // --print-config and run files leave it out
  // For a list: words after the flag's value are values too, unless a positional argument still needs them.
  bool several = false;
  // For a bool that is on: values of other fields that are not given, as "max-queue=9 ignore-eos=off".
  const char* implies = "";
};

// A duration typed with its unit, as 50ms, 1.5s, 200us or 2m (0 needs none); kept in nanoseconds.
struct DurationText {
  int64_t ns = 0;
  bool operator==(const DurationText&) const = default;
};
inline constexpr int64_t kAutoDuration = -1;  // ns of a duration left to the program, where its field allows it
// A size typed as 8GiB, 512MiB, 4096 (bytes); kept in bytes.
struct BytesText {
  int64_t bytes = 0;
};

}  // namespace tactus
