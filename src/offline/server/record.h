// Converts a batch to and from one JSON text, its record in the database. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "offline/server/rows.h"
#include "tactus/status.h"

namespace tactus::offline {

std::string RecordOf(const BatchRow& batch);
// kDataLoss: the text is not a record.
Result<BatchRow> BatchOf(std::string_view record);

}  // namespace tactus::offline
