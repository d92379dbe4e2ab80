#include "http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <climits>

namespace tactus::http {
namespace {

namespace asio = boost::asio;

// Boost's base class has a destructor that is not virtual; these objects are static and never deleted.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
// Errors of TLS by their OpenSSL codes.
class TlsErrors final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "TLS"; }
  std::string message(int code) const override {
    const char* reason = ERR_reason_error_string(static_cast<unsigned long>(code));
    return std::string("TLS: ") + (reason == nullptr ? "the handshake failed" : reason);
  }
};

// Reasons why a certificate was refused (X509_V_ERR_...).
class CertificateErrors final : public boost::system::error_category {
 public:
  const char* name() const noexcept override { return "certificate"; }
  std::string message(int code) const override {
    return std::string("the certificate is refused: ") + X509_verify_cert_error_string(code);
  }
};

#pragma GCC diagnostic pop

int Bytes(size_t size) {
  return static_cast<int>(std::min<size_t>(size, INT_MAX));
}

}  // namespace

void Transport::Free::operator()(ssl_st* ssl) const {
  SSL_free(ssl);
}

bool Transport::BeginTls(const TlsContext& context, const std::string& host) {
  boost::system::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  ssl_.reset(context.Begin(socket_.native_handle(), host));
  return ssl_ != nullptr;
}

bool Transport::has_peer_certificate() const {
  return ssl_ != nullptr && SSL_get0_peer_certificate(ssl_.get()) != nullptr &&
         SSL_get_verify_result(ssl_.get()) == X509_V_OK;
}

bool Transport::DropTlsIfHttp() {
  if (spoke_http_) ssl_.reset();
  return spoke_http_;
}

// Call directly after the operation, before anything else changes errno or OpenSSL's errors.
Transport::Error Transport::ErrorOf(int result) {
  static const TlsErrors tls_errors;
  static const CertificateErrors certificate_errors;
  const int system_error = errno;
  const int kind = SSL_get_error(ssl_.get(), result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return asio::error::would_block;
  if (kind == SSL_ERROR_ZERO_RETURN) return asio::error::eof;
  const unsigned long code = ERR_peek_error();
  ERR_clear_error();
  if (code == 0) {
    const bool closed = system_error == 0 || kind != SSL_ERROR_SYSCALL;
    return closed ? Error(asio::error::connection_reset) : Error(system_error, boost::system::system_category());
  }
  const int reason = ERR_GET_REASON(code);
  if (reason == SSL_R_HTTP_REQUEST) spoke_http_ = true;
  if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return asio::error::connection_reset;
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    return {static_cast<int>(SSL_get_verify_result(ssl_.get())), certificate_errors};
  }
  return {static_cast<int>(code), tls_errors};
}

asio::awaitable<bool> Transport::Waited(int result, Error* ec) {
  const bool writes = SSL_want_write(ssl_.get());
  *ec = ErrorOf(result);
  if (*ec != asio::error::would_block) co_return false;
  in_a_row_ = 0;
  const Socket::wait_type what = writes ? Socket::wait_write : Socket::wait_read;
  co_await socket_.async_wait(what, asio::redirect_error(asio::use_awaitable, *ec));
  co_return !*ec;
}

asio::awaitable<void> Transport::TakeTurn() {
  constexpr int kMostInARow = 8;
  if (++in_a_row_ < kMostInARow) co_return;
  in_a_row_ = 0;
  co_await asio::post(socket_.get_executor(), asio::use_awaitable);
}

asio::awaitable<Transport::Error> Transport::Handshake() {
  Error ec;
  for (;;) {
    if (!socket_.is_open()) co_return asio::error::bad_descriptor;
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) co_return Error();
    const bool again = co_await Waited(result, &ec);
    if (!again) co_return ec ? ec : Error(asio::error::connection_reset);
  }
}

size_t Transport::ReadNow(asio::mutable_buffer to, Error* ec) {
  if (ssl_ == nullptr) return socket_.read_some(to, *ec);
  *ec = asio::error::bad_descriptor;
  if (!socket_.is_open()) return 0;
  ERR_clear_error();
  errno = 0;
  const int result = SSL_read(ssl_.get(), to.data(), Bytes(to.size()));
  *ec = result > 0 ? Error() : ErrorOf(result);
  return result > 0 ? static_cast<size_t>(result) : 0;
}

asio::awaitable<size_t> Transport::TlsSome(bool writes, void* bytes, size_t size, Error* ec) {
  co_await TakeTurn();
  for (;;) {
    *ec = asio::error::bad_descriptor;
    if (!socket_.is_open()) co_return 0;
    ERR_clear_error();
    errno = 0;
    const int result = writes ? SSL_write(ssl_.get(), bytes, Bytes(size)) : SSL_read(ssl_.get(), bytes, Bytes(size));
    *ec = Error();
    if (result > 0) co_return static_cast<size_t>(result);
    const bool again = co_await Waited(result, ec);
    if (!again) co_return 0;
  }
}

asio::awaitable<size_t> Transport::ReadSome(asio::mutable_buffer to, Error* ec) {
  size_t size = 0;
  if (ssl_ == nullptr) {
    size = co_await socket_.async_read_some(to, asio::redirect_error(asio::use_awaitable, *ec));
  } else {
    size = co_await TlsSome(false, to.data(), to.size(), ec);
  }
  co_return size;
}

asio::awaitable<size_t> Transport::WriteSome(asio::const_buffer from, Error* ec) {
  size_t size = 0;
  if (ssl_ == nullptr) {
    size = co_await socket_.async_write_some(from, asio::redirect_error(asio::use_awaitable, *ec));
  } else {
    size = co_await TlsSome(true, const_cast<void*>(from.data()), from.size(), ec);  // only read
  }
  co_return size;
}

asio::awaitable<void> Transport::WriteAll(std::string_view head, std::string_view body, Error* ec) {
  if (ssl_ == nullptr) {
    const std::array<asio::const_buffer, 2> text = {asio::buffer(head.data(), head.size()),
                                                    asio::buffer(body.data(), body.size())};
    co_await asio::async_write(socket_, text, asio::redirect_error(asio::use_awaitable, *ec));
    co_return;
  }
  *ec = Error();
  for (std::string_view part : {head, body}) {
    while (!part.empty() && !*ec) {
      const asio::const_buffer left(part.data(), part.size());
      const size_t written = co_await WriteSome(left, ec);
      part.remove_prefix(written);
    }
  }
}

bool Transport::has_decrypted() const {
  return ssl_ != nullptr && SSL_pending(ssl_.get()) > 0;
}

void Transport::ShutDownSend() {
  if (ssl_ != nullptr && socket_.is_open() && SSL_is_init_finished(ssl_.get())) {
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

}  // namespace tactus::http
