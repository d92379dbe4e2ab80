// The standard headers that most files use. Precompiled once for all modules; nothing of ours belongs here, so that
// a change in our headers never rebuilds the world.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
