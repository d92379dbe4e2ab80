// Files and batches as OpenAI's API has them: what is asked for, and the objects that answer. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "offline/server/rows.h"
#include "tactus/status.h"

namespace tactus::offline {

std::string FileText(const FileRow& file);
std::string DeletedFileText(std::string_view id);
std::string FileListText(const Listed<FileRow>& files);
// `model`: what answers its lines.
std::string BatchText(const BatchRow& batch, std::string_view model);
std::string BatchListText(const Listed<BatchRow>& batches, std::string_view model);

// Fills in what the body of POST /v1/batches says: endpoint, input, window, metadata, expires_s and results_live_s.
Result<BatchRow> ParseBatch(std::string_view body, int64_t now_s);

// The fields of a form that uploads a file, beside the file: each with its value, in the order in which they came.
struct UploadFields {
  int64_t live_s = 0;  // how long the file is kept; 0: until it is deleted
};
Result<UploadFields> ParseUpload(const std::vector<std::pair<std::string, std::string>>& fields);
// As soon as it is known: a wrong one is not uploaded first.
Status CheckPurpose(std::string_view purpose);

// The query of a target: after, limit (1 to `most`, else `usual`), order; and `purpose` where it is taken.
Result<Page> ParsePage(std::string_view target, int64_t usual, int64_t most, std::string* purpose);

}  // namespace tactus::offline
