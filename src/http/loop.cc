#include "http/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <utility>

#include "http/loop_impl.h"

namespace tactus::http {
namespace asio = boost::asio;
using boost::system::error_code;

Loop::Loop() : impl_(std::make_unique<Impl>()) {}

Loop::~Loop() = default;

void Loop::Post(std::function<void()> call) {
  asio::post(impl_->io, std::move(call));
}

void Loop::After(DurationNs time_ns, std::function<void()> call) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->io);
  timer->expires_after(std::chrono::nanoseconds(std::max<DurationNs>(0, time_ns)));
  timer->async_wait([timer, run = std::move(call)](error_code ec) {
    if (!ec) run();
  });
}

void Loop::Resolve(const std::string& host, std::function<void(Result<std::vector<std::string>>)> found) {
  auto resolver = std::make_shared<asio::ip::tcp::resolver>(impl_->io);
  resolver->async_resolve(host, "", [resolver, host, found = std::move(found)](error_code ec, const auto& entries) {
    std::vector<std::string> addresses;
    for (const auto& entry : entries) addresses.push_back(entry.endpoint().address().to_string());
    std::sort(addresses.begin(), addresses.end());
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    if (ec || addresses.empty()) {
      return found(Status(StatusCode::kUnavailable, fmt::format("'{}' has no address: {}", host, ec.message())));
    }
    found(std::move(addresses));
  });
}

void Loop::Run() {
  for (bool ended = false; !ended;) {
    try {
      impl_->io.run();
      ended = true;
    } catch (const std::exception&) {
      // For example out of memory: other callbacks still run.
    }
  }
  impl_->io.restart();  // after the loop, so that a Stop before Run is not lost
}

void Loop::Stop() {
  impl_->io.stop();
}

}  // namespace tactus::http
