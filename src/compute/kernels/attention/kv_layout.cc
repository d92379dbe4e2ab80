#include "compute/kernels/attention/kv_layout.h"

namespace tactus::compute {

int64_t KvBlockBytes(const KvLayer& kv) {
  return kv.kv_heads * KvHeadBytes(kv);
}

}  // namespace tactus::compute
