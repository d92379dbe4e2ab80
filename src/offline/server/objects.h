// Files and batches in OpenAI's API: parses requests and writes the response objects. Any thread.
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
// `model`: the model that answers the batch's lines.
std::string BatchText(const BatchRow& batch, std::string_view model);
std::string BatchListText(const Listed<BatchRow>& batches, std::string_view model);

// Reads the body of POST /v1/batches: endpoint, input, window, metadata, expires_s and results_live_s.
Result<BatchRow> ParseBatch(std::string_view body, int64_t now_s);

// The form fields of a file upload, without the file: names and values in order of arrival.
struct UploadFields {
  int64_t live_s = 0;  // lifetime of the file; 0: until it is deleted
};
Result<UploadFields> ParseUpload(const std::vector<std::pair<std::string, std::string>>& fields);
// Called as soon as the purpose is known, so that a file with a wrong one is not uploaded first.
Status CheckPurpose(std::string_view purpose);

// The query of a target: after, limit (1 to `most`, default `usual`), order; and `purpose` if not null.
Result<Page> ParsePage(std::string_view target, int64_t usual, int64_t most, std::string* purpose);

}  // namespace tactus::offline
