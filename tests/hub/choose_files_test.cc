#include "hub/choose_files.h"

#include <gtest/gtest.h>

#include "base/printable.h"

namespace tactus::hub {
namespace {

using Paths = std::vector<std::string>;

std::vector<RepositoryFile> FilesNamed(const Paths& paths) {
  std::vector<RepositoryFile> files;
  for (const std::string& path : paths) files.push_back({path, 1000, ""});
  return files;
}

std::string Load(const Paths& paths, const std::string& selector) {
  const auto chosen = ChooseFiles(FilesNamed(paths), selector, "hf:m");
  return chosen.ok() ? chosen->load : "error: " + chosen.status().message();
}

TEST(ChooseFiles, QuantisationsAreComparedWithoutCaseAndAsAWhole) {
  const Paths paths = {"m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-q8_0.gguf", "m.IQ4_XS.gguf", "m-BF16.gguf"};
  EXPECT_EQ(Load(paths, "q4_k"), "m-Q4_K.gguf");
  EXPECT_EQ(Load(paths, "Q4_K_M"), "m-Q4_K_M.gguf");
  EXPECT_EQ(Load(paths, "Q8_0"), "m-q8_0.gguf");
  EXPECT_EQ(Load(paths, "iq4_xs"), "m.IQ4_XS.gguf");
  EXPECT_EQ(Load(paths, "bf16"), "m-BF16.gguf");
  EXPECT_NE(Load(paths, "4_K_M").find("nothing that '4_K_M' names"), std::string::npos);
  EXPECT_NE(Load(paths, "F16").find("error"), std::string::npos);  // the end of BF16 is no quantisation
}

TEST(ChooseFiles, ThePlainQuantisationGoesBeforeTheDynamicOne) {
  const Paths paths = {"m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf", "m-UD-Q2_K_XL.gguf"};
  EXPECT_EQ(Load(paths, "Q4_K_M"), "m-Q4_K_M.gguf");
  EXPECT_EQ(Load(paths, "UD-Q4_K_M"), "m-UD-Q4_K_M.gguf");
  EXPECT_EQ(Load(paths, "Q2_K_XL"), "m-UD-Q2_K_XL.gguf");
}

TEST(ChooseFiles, APathAFileAndAFolderAreSelectors) {
  const Paths paths = {"Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf", "F16/m.gguf", "m.gguf"};
  EXPECT_EQ(Load(paths, "m.gguf"), "m.gguf");
  EXPECT_EQ(Load(paths, "F16/m.gguf"), "F16/m.gguf");
  EXPECT_EQ(Load(paths, "f16"), "F16/m.gguf");
  EXPECT_EQ(Load(paths, "Q8_0"), paths[0]);
  EXPECT_EQ(Load(paths, "Q8_0/m-Q8_0-00002-of-00002.gguf"), paths[0]);
}

TEST(ChooseFiles, AmbiguityIsRefusedWithTheList) {
  EXPECT_EQ(Load({"m-Q8_0.gguf"}, ""), "m-Q8_0.gguf");
  EXPECT_EQ(Load({"m-Q8_0.gguf", "mmproj-m-F16.gguf", "m.imatrix.gguf"}, ""), "m-Q8_0.gguf");
  const auto several = ChooseFiles(FilesNamed({"a-Q8_0.gguf", "b-Q8_0.gguf", "a-Q4_0.gguf"}), "", "hf:m");
  EXPECT_EQ(several.status().code(), StatusCode::kInvalidArgument);
  for (const char* part : {"hf:m has several models", "Q4_0 (1.0 kB)", "a-Q8_0.gguf (1.0 kB)", "b-Q8_0.gguf (1.0 kB)"})
    EXPECT_NE(several.status().message().find(part), std::string::npos) << several.status().message();
  const auto twice = ChooseFiles(FilesNamed({"a-Q8_0.gguf", "b-Q8_0.gguf", "a-Q4_0.gguf"}), "Q8_0", "hf:m");
  EXPECT_EQ(twice.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(twice.status().message().find("Q4_0"), std::string::npos);
}

TEST(ChooseFiles, BothFormatsNeedASelector) {
  const Paths paths = {"config.json", "model.safetensors", "m-Q8_0.gguf"};
  EXPECT_NE(Load(paths, "").find("safetensors, Q8_0"), std::string::npos);
  EXPECT_EQ(Load(paths, "safetensors"), "");
  EXPECT_EQ(Load(paths, "q8_0"), "m-Q8_0.gguf");
}

TEST(ChooseFiles, SafetensorsBringTheirTexts) {
  const Paths texts = {"config.json",
                       "generation_config.json",
                       "tokenizer.json",
                       "tokenizer.model",
                       "tokenizer_config.json",
                       "chat_template.jinja",
                       "vocab.json",
                       "merges.txt",
                       "additional_chat_templates/tool_use.jinja"};
  Paths all = texts;
  for (const char* other : {"model.safetensors", "consolidated.safetensors", "model.fp16.safetensors", "README.md",
                            "onnx/config.json", "additional_chat_templates/x.py", "preprocessor_config.json"})
    all.emplace_back(other);
  const auto chosen = ChooseFiles(FilesNamed(all), "", "hf:m");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->texts, texts);
  EXPECT_EQ(chosen->weights, Paths({"model.safetensors"}));
  EXPECT_EQ(chosen->index + chosen->load, "");
}

TEST(ChooseFiles, AnIndexNamesTheWeightsUnlessThereIsOneFile) {
  Paths paths = {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"};
  auto chosen = ChooseFiles(FilesNamed(paths), "", "hf:m");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->index, "model.safetensors.index.json");
  EXPECT_EQ(chosen->texts, Paths({"config.json", "model.safetensors.index.json"}));
  EXPECT_TRUE(chosen->weights.empty());
  paths.emplace_back("model.safetensors");
  chosen = ChooseFiles(FilesNamed(paths), "", "hf:m");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->texts, Paths({"config.json"}));
  EXPECT_EQ(chosen->index, "");
}

TEST(ChooseFiles, ARepositoryWithoutModelSaysWhatIsThere) {
  const auto none = ChooseFiles(FilesNamed({"config.json", "pytorch_model.bin", "README.md"}), "", "hf:m");
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_NE(none.status().message().find("it has pytorch_model.bin"), std::string::npos) << none.status().message();
}

TEST(ChooseFiles, AMissingPartIsNamed) {
  const auto chosen = ChooseFiles(FilesNamed({"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}), "", "hf:m");
  EXPECT_EQ(chosen.status().code(), StatusCode::kNotFound);
  EXPECT_NE(chosen.status().message().find("m-00002-of-00003.gguf"), std::string::npos);
}

TEST(ChooseFiles, IndexGivesEachFileOnce) {
  const auto files =
      WeightsOfIndex(R"({"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}})", "i");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(*files, Paths({"1.safetensors", "2.safetensors"}));
  for (const char* text : {"", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {}})",
                           R"({"weight_map": {"a": 5}})", R"({"weight_map": {"a": "../x"}})"})
    EXPECT_EQ(WeightsOfIndex(text, "i").status().code(), StatusCode::kDataLoss) << text;
}

TEST(ChooseFiles, EveryModelIsListedWithItsSelector) {
  const auto all =
      AllModels(FilesNamed({"config.json", "model.safetensors", "a-Q8_0.gguf", "b-Q8_0.gguf", "b-F16.gguf"}));
  Paths selectors;
  for (const ListedChoice& choice : all) selectors.push_back(choice.selector);
  EXPECT_EQ(selectors, Paths({"safetensors", "a-Q8_0.gguf", "F16", "b-Q8_0.gguf"}));
  EXPECT_EQ(AllModels(FilesNamed({"config.json", "model.safetensors"}))[0].selector, "");
}

}  // namespace
}  // namespace tactus::hub
