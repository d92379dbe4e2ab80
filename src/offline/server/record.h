// A batch as one JSON text: its row in the database. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "offline/server/rows.h"
#include "tactus/status.h"

namespace tactus::offline {

std::string RecordOf(const BatchRow& batch);
// kDataLoss: it is none.
Result<BatchRow> BatchOf(std::string_view record);

}  // namespace tactus::offline
