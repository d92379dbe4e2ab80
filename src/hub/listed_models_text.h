#pragma once

namespace tactus::hub {

extern const char* const kListedModelsText;  // data/models/listed_models.txt

}  // namespace tactus::hub
