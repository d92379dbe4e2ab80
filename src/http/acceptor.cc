#include "http/acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <thread>
#include <unordered_map>

#include "base/thread_role.h"
#include "http/connection_places.h"
#include "http/loop_impl.h"
#include "http/spare_file.h"

namespace tactus::http {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kPause{20};

struct Acceptor::Impl {
  explicit Impl(const Options& o)
      : options(o), places(o.max_connections, std::max<int64_t>(1, o.max_connections / 2), 0) {}

  void Wait();
  void WaitAgain(bool at_once);
  bool AcceptAll();
  void Accepted(tcp::socket socket);
  void Refuse(tcp::socket& socket);
  bool RefuseForWantOfFiles();
  void Forget(int file);
  void ForgetClosed();

  // A socket that was passed on. Its descriptor may belong to another file by now; its inode does not.
  struct Handed {
    ino_t inode = 0;
    std::string client;
  };

  const Options options;
  std::function<void(int)> take;
  ConnectionPlaces places;
  std::unordered_map<int, Handed> handed;
  std::atomic<int64_t> refused{0};
  SpareFile spare_file;
  Loop loop;
  asio::io_context& io = loop.impl().io;
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::thread thread;
};

void Acceptor::Impl::Wait() {
  acceptor.async_wait(tcp::acceptor::wait_read, [this](error_code ec) {
    if (ec) return;
    bool all = false;
    try {
      all = AcceptAll();
    } catch (const std::exception&) {
      // For example out of memory: that client is dropped.
    }
    WaitAgain(all);
  });
}

// After a failure it pauses, because clients that could not be accepted are still queued and would wake it at once,
// endlessly.
void Acceptor::Impl::WaitAgain(bool at_once) {
  for (;;) {
    try {
      if (at_once) return Wait();
      pause.expires_after(kPause);
      return pause.async_wait([this](error_code ec) {
        if (!ec) WaitAgain(true);
      });
    } catch (const std::exception&) {  // no memory for the timer
      poll(nullptr, 0, static_cast<int>(kPause.count()));
    }
  }
}

// False: clients remain that could not be accepted.
bool Acceptor::Impl::AcceptAll() {
  for (;;) {
    error_code ec;
    tcp::socket socket(io);
    acceptor.accept(socket, ec);
    if (ec == asio::error::no_descriptors || ec == boost::system::errc::too_many_files_open_in_system)
      return RefuseForWantOfFiles();
    if (ec) return ec == asio::error::would_block || ec == asio::error::try_again;  // all are accepted
    Accepted(std::move(socket));
  }
}

void Acceptor::Impl::Accepted(tcp::socket socket) {
  error_code ec;
  struct stat at = {};
  const int file = socket.native_handle();
  const auto peer = socket.remote_endpoint(ec);
  if (ec || fstat(file, &at) != 0) return;  // the client has disconnected
  Forget(file);
  const std::string client = ClientKey(peer.address().to_string());
  if (places.Enter(client) == Place::kNone) {
    ForgetClosed();
    if (places.Enter(client) == Place::kNone) return Refuse(socket);
  }
  handed[file] = {at.st_ino, client};
  socket.set_option(tcp::no_delay(true), ec);
  socket.non_blocking(true, ec);
  socket.release(ec);
  take(file);
}

void Acceptor::Impl::Refuse(tcp::socket& socket) {
  error_code ignored;
  refused.fetch_add(1);
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(options.refusal), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

// Refuses one client; for the next one a descriptor may be free again. False: another thread has taken the spare one.
bool Acceptor::Impl::RefuseForWantOfFiles() {
  bool accepted = false;
  if (spare_file.Give()) {
    error_code ec;
    tcp::socket socket(io);
    acceptor.accept(socket, ec);
    accepted = !ec;
    if (accepted) Refuse(socket);
  }
  spare_file.Take();
  return accepted;
}

void Acceptor::Impl::Forget(int file) {
  const auto found = handed.find(file);
  if (found == handed.end()) return;
  places.Leave(found->second.client, Place::kServed);
  handed.erase(found);
}

void Acceptor::Impl::ForgetClosed() {
  std::erase_if(handed, [this](const auto& entry) {
    struct stat at = {};
    if (fstat(entry.first, &at) == 0 && S_ISSOCK(at.st_mode) && at.st_ino == entry.second.inode) return false;
    places.Leave(entry.second.client, Place::kServed);
    return true;
  });
}

Result<std::unique_ptr<Acceptor>> Acceptor::Listen(const Options& options) {
  auto impl = std::make_unique<Impl>(options);
  error_code ec;
  tcp::resolver resolver(impl->io);
  const auto found = resolver.resolve(options.host, fmt::format("{}", options.port), tcp::resolver::passive, ec);
  if (!ec && found.empty()) ec = asio::error::host_not_found;
  if (!ec) {
    const tcp::endpoint endpoint = found.begin()->endpoint();
    impl->acceptor.open(endpoint.protocol(), ec);
    if (!ec) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) impl->acceptor.bind(endpoint, ec);
    if (!ec) impl->acceptor.listen(4096, ec);
    if (!ec) impl->acceptor.non_blocking(true, ec);
  }
  if (ec) return Status(StatusCode::kUnavailable, ec.message());
  return std::unique_ptr<Acceptor>(new Acceptor(std::move(impl)));
}

Acceptor::Acceptor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

void Acceptor::Start(std::function<void(int)> take) {
  impl_->take = std::move(take);
  impl_->Wait();
  impl_->thread = std::thread([impl = impl_.get()] {
    SetThreadRole(ThreadRole::kService, "tactus-accept");
    impl->loop.Run();
  });
}

Acceptor::~Acceptor() {
  impl_->loop.Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

uint16_t Acceptor::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

int64_t Acceptor::refused() const {
  return impl_->refused.load();
}

}  // namespace tactus::http
