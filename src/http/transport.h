// The bytes of one connection, with or without TLS. TLS is computed on the thread that uses the connection, between
// waits for the socket, so a wait can be cancelled at any time and a slow handshake blocks nothing. Internal to http/;
// includes Asio.
//
// One thread. A read and a write may be in progress at the same time. Invariant: after the socket is closed, its
// descriptor, which may belong to another connection by then, is not used.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "http/tls.h"

namespace tactus::http {

class Transport {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;

  explicit Transport(Socket socket) : socket_(std::move(socket)) {}
  Transport(const Transport&) = delete;

  Socket& socket() { return socket_; }
  // From now on the connection uses TLS. `host`: as of TlsContext::Begin. False: no memory.
  bool BeginTls(const TlsContext& context, const std::string& host);
  bool tls() const { return ssl_ != nullptr; }
  // Ends with an error if the other side's certificate is refused.
  boost::asio::awaitable<Error> Handshake();
  // After a failed handshake: whether the client sent an HTTP request instead. Later bytes are not encrypted.
  bool DropTlsIfHttp();
  // Whether the other side has shown a certificate; it was checked.
  bool has_peer_certificate() const;

  // As the socket's functions of these names, for some bytes. The end of the stream is asio::error::eof; with TLS it is
  // an error unless the other side has announced it.
  boost::asio::awaitable<size_t> ReadSome(boost::asio::mutable_buffer to, Error* ec);
  boost::asio::awaitable<size_t> WriteSome(boost::asio::const_buffer from, Error* ec);
  boost::asio::awaitable<void> WriteAll(std::string_view head, std::string_view body, Error* ec);
  // Does not wait: asio::error::would_block if there are no bytes.
  size_t ReadNow(boost::asio::mutable_buffer to, Error* ec);
  // Whether bytes have been received and decrypted, which a wait for the socket would not notice.
  bool has_decrypted() const;
  // Tells the other side that no bytes follow.
  void ShutDownSend();

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  // TLS operations end without a wait while there are bytes: gives other connections a turn after some of them.
  boost::asio::awaitable<void> TakeTurn();
  // What a TLS operation with this result is waiting for; ok: nothing, it has ended with *ec.
  boost::asio::awaitable<bool> Waited(int result, Error* ec);
  Error ErrorOf(int result);
  // SSL_write or SSL_read of some of `size` bytes; waits for the socket. 0: it has ended with *ec.
  boost::asio::awaitable<size_t> TlsSome(bool writes, void* bytes, size_t size, Error* ec);

  Socket socket_;
  std::unique_ptr<ssl_st, Free> ssl_;
  bool spoke_http_ = false;
  int in_a_row_ = 0;  // operations without a wait
};

}  // namespace tactus::http
