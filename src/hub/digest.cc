#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/check.h"
#include "hub/file_names.h"

namespace tactus::hub {

struct Digest::State {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

std::unique_ptr<Digest> Digest::ForHash(const std::string& expected, int64_t file_bytes) {
  const bool sha256 = IsHex(expected, 64), git = IsHex(expected, 40);
  if (!sha256 && !git) return nullptr;
  auto state = std::make_unique<State>();
  TACTUS_CHECK(EVP_DigestInit_ex(state->context.get(), sha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1);
  std::unique_ptr<Digest> digest(new Digest(std::move(state)));
  if (git) {
    const std::string head = fmt::format("blob {}", file_bytes);
    digest->Add(head.c_str(), head.size() + 1);  // with the zero
  }
  return digest;
}

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::~Digest() = default;

void Digest::Add(const void* data, size_t size) {
  TACTUS_CHECK(EVP_DigestUpdate(state_->context.get(), data, size) == 1);
}

std::string Digest::Hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  TACTUS_CHECK(EVP_DigestFinal_ex(state_->context.get(), bytes, &size) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

}  // namespace tactus::hub
