// Certificates and keys of one side of TLS connections (OpenSSL): of a listener, or of clients. Reload reads the files
// again; connections that are open keep the certificate that they began with.
//
// Any thread. Invariant: a failed Reload changes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tactus/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tactus::http {

// PEM files. The names are those of the options, for errors.
struct TlsFile {
  const char* option = "";
  std::string path;  // empty: not given
};

class TlsContext {
 public:
  // For a listener. `clients`: the authorities that sign the certificates of its clients; not given: it asks for none.
  // kInvalidArgument names the option, the file and the reason.
  static Result<std::shared_ptr<TlsContext>> ForServer(TlsFile certificate, TlsFile key, TlsFile clients);
  // For connections to servers. `authority`: signs their certificates; not given: the system's authorities.
  // `certificate` and `key` are shown to servers that ask for one; either both or neither. `name`: what the
  // certificates of the servers must have; empty: the host of the URL.
  static Result<std::shared_ptr<TlsContext>> ForClient(TlsFile authority, TlsFile certificate, TlsFile key,
                                                       std::string name = {});
  // For connections that trust the system's authorities and show no certificate.
  static Result<std::shared_ptr<TlsContext>> SystemClient();
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // New connections use the files as they are now. Errors as of ForServer.
  Status Reload();
  // Whether a listener asks its clients for certificates.
  bool asks_clients() const { return is_server_ && !authority_.path.empty(); }
  // The end of the certificate's validity, in seconds since the Unix epoch; 0: there is no certificate.
  int64_t not_after_s() const;
  // A problem of the files that lets connections be made, such as a certificate that has expired; empty: none.
  std::string Warning() const;

  // The certificate with its chain and the key that new connections use, for TLS that OpenSSL's sockets do not serve
  // (gRPC). Both empty: there is no certificate.
  struct Pem {
    std::string certificate, key;
  };
  Pem Current() const;

  // A connection's state on this socket. The caller frees it. Null: no memory. `host`: the name or address of the
  // server, which its certificate must have unless the context has a name; empty for a listener.
  ssl_st* Begin(int socket, const std::string& host) const;

 private:
  TlsContext(bool is_server, TlsFile certificate, TlsFile key, TlsFile authority, std::string name);
  Result<std::shared_ptr<ssl_ctx_st>> Load() const;

  const bool is_server_;
  const TlsFile certificate_, key_, authority_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::shared_ptr<ssl_ctx_st> current_;
};

}  // namespace tactus::http
