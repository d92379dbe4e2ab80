#include <fmt/format.h>

#include "base/printable.h"
#include "tactus/migration.h"

namespace tactus {
namespace {

Status Differs(const char* what, const std::string& here, const std::string& there) {
  return InvalidArgument(
      fmt::format("{}: here '{}', there '{}'; a sequence moves between replicas of one model, one "
                  "program and one --block-size and --kv-cache-dtype",
                  what, Printable(here), Printable(there)));
}

}  // namespace

Status CheckSameFormat(const MigrationFormat& here, const MigrationFormat& there) {
  if (here.model != there.model) return Differs("model", here.model, there.model);
  if (here.kv_dtype != there.kv_dtype) return Differs("KV dtype", here.kv_dtype, there.kv_dtype);
  if (here.block_size != there.block_size)
    return Differs("block size", std::to_string(here.block_size), std::to_string(there.block_size));
  if (here.fingerprint != there.fingerprint)
    return Differs("weights, program and kernels", here.fingerprint, there.fingerprint);
  if (here.block_bytes != there.block_bytes)
    return Differs("bytes of a block", std::to_string(here.block_bytes), std::to_string(there.block_bytes));
  return Status();
}

}  // namespace tactus
