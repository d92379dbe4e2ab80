// Replicas that come and go by a file or a DNS name: whoever appears there is added to the fleet, and who was added
// that way and is not there any more is removed.
//
// Thread rule: the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/router/fleet_watch.h"
#include "fleet/router/router_options.h"
#include "http/loop.h"

namespace tactus::fleet {

class Discovery {
 public:
  // What can be said of them before a port is taken. kInvalidArgument names the option.
  static Status Check(const FleetOptions& options);
  // Reads the file once; what is wrong with it is kInvalidArgument, later a line of the log, and then the last good one
  // holds. All three references outlive it.
  static Result<std::unique_ptr<Discovery>> Create(const FleetOptions& options, http::Loop& loop, FleetWatch& watch,
                                                   FleetWatch::Log log);
  ~Discovery();

 private:
  Discovery(const FleetOptions& options, http::Loop& loop, FleetWatch& watch, FleetWatch::Log log);
  void ReadFileAgain();
  void AskDns();
  Status ReadFile();
  void Say(const std::string& option, const Status& status);
  bool Stays(const std::string& url, const std::vector<std::string>* followed) const;
  void Follow(std::vector<std::string>* followed, std::vector<std::string> urls);
  void Later(DurationNs after_ns, void (Discovery::*what)());

  const FleetOptions options_;
  http::Loop& loop_;
  FleetWatch& watch_;
  const FleetWatch::Log log_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::string file_text_, read_text_, dns_host_, dns_port_;  // that counts, that was read last
  bool read_once_ = false;
  std::map<std::string, std::string> said_;  // by option: what is wrong
  std::vector<std::string> from_file_, from_dns_;
};

}  // namespace tactus::fleet
