// Discovers replicas by a file or a DNS name: replicas that appear there are added to the fleet, and replicas added
// this way are removed when they disappear.
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
  // Checks that need no port. kInvalidArgument names the option.
  static Status Check(const FleetOptions& options);
  // Reads the file once; a fault in it is kInvalidArgument. Later faults are logged, and the last good file stays in
  // effect. All three references outlive this.
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
  std::string file_text_, read_text_, dns_scheme_, dns_host_, dns_port_;  // in effect, read last
  bool read_once_ = false;
  std::map<std::string, std::string> said_;  // by option: the last fault logged
  std::vector<std::string> from_file_, from_dns_;
};

}  // namespace tactus::fleet
