#include "http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/input_file.h"

namespace tactus::http {
namespace {

constexpr int64_t kPemBytes = 4 << 20;
constexpr const char* kNoMemory = "no memory for TLS";

// The newest error of OpenSSL, in words; forgets all of them.
std::string OpenSslError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "an unknown error" : reason;
}

Status Bad(const TlsFile& file, const std::string& why) {
  return InvalidArgument(fmt::format("--{}: {}: {}", file.option, file.path, why), file.option);
}

// The file's text, which has at least one PEM block.
Result<std::string> ReadPem(const TlsFile& file) {
  auto text = ReadInputFile(file.path, kPemBytes);
  if (!text.ok()) return InvalidArgument(fmt::format("--{}: {}", file.option, text.status().message()), file.option);
  if (text->find("-----BEGIN ") == std::string::npos)
    return Bad(file, "it is not a PEM file; convert it with 'openssl x509' or 'openssl pkey'");
  return text;
}

template <class T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
struct Memory {
  Memory() : bio(BIO_new(BIO_s_mem())) {}
  explicit Memory(const std::string& text) : bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))) {}
  ~Memory() { BIO_free(bio); }
  Memory(const Memory&) = delete;
  std::string Text() const {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return size > 0 ? std::string(data, static_cast<size_t>(size)) : std::string();
  }
  BIO* const bio;
};

// Called for the password of an encrypted key: there is none to give, and a prompt would wait for a terminal.
int NoPassword(char*, int, int, void*) {
  return -1;
}

// The first certificate is the own one, the rest its chain.
Status UseCertificate(SSL_CTX* context, const TlsFile& file) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadPem(file));
  const Memory memory(text);
  const Certificate own(PEM_read_bio_X509_AUX(memory.bio, nullptr, NoPassword, nullptr));
  if (own == nullptr) return Bad(file, "it has no certificate (" + OpenSslError() + ")");
  if (SSL_CTX_use_certificate(context, own.get()) != 1) return Bad(file, OpenSslError());
  while (X509* next = PEM_read_bio_X509(memory.bio, nullptr, NoPassword, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, next) == 1) continue;
    X509_free(next);
    return Bad(file, OpenSslError());
  }
  const bool end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = OpenSslError();
  return end ? Status() : Bad(file, "a certificate of its chain is damaged (" + why + ")");
}

Status UseKey(SSL_CTX* context, const TlsFile& file, const TlsFile& certificate) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadPem(file));
  if (text.find("ENCRYPTED") != std::string::npos)
    return Bad(file,
               "the key is encrypted, and there is no one to ask for its password; decrypt it with 'openssl pkey'");
  const Memory memory(text);
  const Key key(PEM_read_bio_PrivateKey(memory.bio, nullptr, NoPassword, nullptr));
  if (key == nullptr) return Bad(file, "it has no private key (" + OpenSslError() + ")");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    ERR_clear_error();
    return Bad(file,
               fmt::format("it is not the key of the certificate in {} (--{})", certificate.path, certificate.option));
  }
  return Status();
}

// `listed`: the names of the authorities are sent to clients, which choose a certificate by them.
Status UseAuthority(SSL_CTX* context, const TlsFile& file, bool listed) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadPem(file));
  const Memory memory(text);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  int found = 0;
  while (X509* next = PEM_read_bio_X509(memory.bio, nullptr, NoPassword, nullptr)) {
    const Certificate authority(next);
    if (X509_STORE_add_cert(store, authority.get()) != 1) return Bad(file, OpenSslError());
    if (listed) SSL_CTX_add_client_CA(context, authority.get());
    ++found;
  }
  const bool end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = OpenSslError();
  if (found > 0 && end) return Status();
  return Bad(file, found == 0 ? "it has no certificate" : "a certificate in it is damaged (" + why + ")");
}

// HTTP/1.1 is the only protocol: clients that also offer another one choose it.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes, const unsigned char* offered,
                   unsigned int offered_bytes, void*) {
  constexpr std::string_view kHttp11("\x08http/1.1", 9);
  unsigned char* found = nullptr;
  const int result = SSL_select_next_proto(&found, chosen_bytes, reinterpret_cast<const unsigned char*>(kHttp11.data()),
                                           static_cast<unsigned int>(kHttp11.size()), offered, offered_bytes);
  if (result != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

bool IsAddress(const std::string& host) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

}  // namespace

TlsContext::TlsContext(bool is_server, TlsFile certificate, TlsFile key, TlsFile authority, std::string name)
    : is_server_(is_server),
      certificate_(std::move(certificate)),
      key_(std::move(key)),
      authority_(std::move(authority)),
      name_(std::move(name)) {}

TlsContext::~TlsContext() = default;

Result<std::shared_ptr<SSL_CTX>> TlsContext::Load() const {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(is_server_ ? TLS_server_method() : TLS_client_method()), SSL_CTX_free);
  if (context == nullptr) return Status(StatusCode::kResourceExhausted, kNoMemory);
  SSL_CTX* const c = context.get();
  SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // A write may be repeated from another buffer, and idle connections hold no buffers.
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  if (certificate_.path.empty() != key_.path.empty()) {
    const auto& [missing, given] =
        certificate_.path.empty() ? std::pair(certificate_, key_) : std::pair(key_, certificate_);
    return InvalidArgument(fmt::format("--{} is missing: --{} needs it", missing.option, given.option), missing.option);
  }
  if (!certificate_.path.empty()) {
    TACTUS_RETURN_IF_ERROR(UseCertificate(c, certificate_));
    TACTUS_RETURN_IF_ERROR(UseKey(c, key_, certificate_));
  }
  if (!authority_.path.empty()) {
    TACTUS_RETURN_IF_ERROR(UseAuthority(c, authority_, is_server_));
  } else if (!is_server_) {
    SSL_CTX_set_default_verify_paths(c);
  }
  if (is_server_) {
    SSL_CTX_set_alpn_select_cb(c, ChooseProtocol, nullptr);
    constexpr unsigned char kName[] = "tactus";
    SSL_CTX_set_session_id_context(c, kName, sizeof kName - 1);
    // A client without a certificate is refused by its request, so that probes need none.
    SSL_CTX_set_verify(c, authority_.path.empty() ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
  }
  ERR_clear_error();
  return context;
}

namespace {

Result<std::shared_ptr<TlsContext>> Loaded(std::shared_ptr<TlsContext> context) {
  TACTUS_RETURN_IF_ERROR(context->Reload());
  return context;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::ForServer(TlsFile certificate, TlsFile key, TlsFile clients) {
  return Loaded(std::shared_ptr<TlsContext>(
      new TlsContext(true, std::move(certificate), std::move(key), std::move(clients), {})));
}

Result<std::shared_ptr<TlsContext>> TlsContext::ForClient(TlsFile authority, TlsFile certificate, TlsFile key,
                                                          std::string name) {
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets whose other side may have closed
  return Loaded(std::shared_ptr<TlsContext>(
      new TlsContext(false, std::move(certificate), std::move(key), std::move(authority), std::move(name))));
}

Result<std::shared_ptr<TlsContext>> TlsContext::SystemClient() {
  static const Result<std::shared_ptr<TlsContext>> context = ForClient({}, {}, {});
  return context;
}

Status TlsContext::Reload() {
  TACTUS_ASSIGN_OR_RETURN(std::shared_ptr<SSL_CTX> loaded, Load());
  std::lock_guard lock(mutex_);
  current_ = std::move(loaded);
  return Status();
}

int64_t TlsContext::not_after_s() const {
  std::lock_guard lock(mutex_);
  const X509* const own = SSL_CTX_get0_certificate(current_.get());
  std::tm time{};
  if (own == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(own), &time) != 1) return 0;
  return timegm(&time);
}

std::string TlsContext::Warning() const {
  std::lock_guard lock(mutex_);
  const X509* const own = SSL_CTX_get0_certificate(current_.get());
  if (own == nullptr) return {};
  const auto text = [&](const char* what) {
    return fmt::format("--{}: the certificate in {} {}; clients will refuse it", certificate_.option, certificate_.path,
                       what);
  };
  if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) return text("has expired");
  if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) return text("is not valid yet");
  return {};
}

TlsContext::Pem TlsContext::Current() const {
  std::lock_guard lock(mutex_);
  SSL_CTX* const c = current_.get();
  X509* const own = SSL_CTX_get0_certificate(c);
  if (own == nullptr) return {};
  const Memory certificate, key;
  PEM_write_bio_X509(certificate.bio, own);
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(c, &chain);
  for (int i = 0; i < sk_X509_num(chain); ++i) PEM_write_bio_X509(certificate.bio, sk_X509_value(chain, i));
  PEM_write_bio_PrivateKey(key.bio, SSL_CTX_get0_privatekey(c), nullptr, nullptr, 0, nullptr, nullptr);
  ERR_clear_error();
  return {certificate.Text(), key.Text()};
}

SSL* TlsContext::Begin(int socket, const std::string& url_host) const {
  const std::string& host = name_.empty() ? url_host : name_;
  std::shared_ptr<SSL_CTX> context;
  {
    std::lock_guard lock(mutex_);
    context = current_;
  }
  SSL* const ssl = SSL_new(context.get());
  if (ssl == nullptr) {
    ERR_clear_error();
    return nullptr;
  }
  bool good = SSL_set_fd(ssl, socket) == 1;
  if (is_server_) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
    if (IsAddress(host)) {
      good = good && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
    } else {
      SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
      good = good && SSL_set1_host(ssl, host.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
    }
  }
  ERR_clear_error();
  if (good) return ssl;
  SSL_free(ssl);
  return nullptr;
}

}  // namespace tactus::http
