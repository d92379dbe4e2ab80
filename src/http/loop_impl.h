// Internal to http/; includes Asio.
#pragma once

#include <boost/asio/io_context.hpp>

#include "http/loop.h"

namespace tactus::http {

struct Loop::Impl {
  boost::asio::io_context io{1};
};

}  // namespace tactus::http
