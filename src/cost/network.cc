// Networks from link figures: ring all-reduce and point-to-point sends.
#include <algorithm>

#include "cost/operator_times.h"

namespace tactus::cost {
namespace {

// Share of a link's raw figure that large messages reach (NCCL's bus bandwidth on NVSwitch and PCIe machines alike).
constexpr double kLinkEfficiency = 0.75;

// One step of a ring: kernel synchronisation between two neighbours.
double HopNs(const DeviceSpec& device) {
  return device.link == "pcie" ? 3000 : 700;
}
constexpr double kNetworkHopNs = 10000;

double Ring(double bytes, int32_t peers, double bandwidth, double hop_ns) {
  const double share = static_cast<double>(peers - 1) / peers;
  return 2 * (peers - 1) * hop_ns + 2 * share * bytes / (bandwidth * kLinkEfficiency) * 1e9;
}

}  // namespace

double RingAllReduceNs(const DeviceSpec& device, double bytes, int32_t gpus) {
  if (gpus <= 1) return 0;
  double ns = 2 * device.launch_ns;
  const int32_t joined = std::min(gpus, device.group);
  const int32_t groups = (gpus + device.group - 1) / device.group;
  if (joined > 1) ns += Ring(bytes, joined, device.link_bandwidth, HopNs(device));
  if (groups > 1) {
    // Devices that only PCIe joins still share a node of eight; beyond it each group sends its reduced part over the
    // network.
    const bool same_node = device.group < 8 && gpus <= 8;
    ns += Ring(bytes / (same_node ? 1 : joined), groups, same_node ? device.pcie_bandwidth : device.network_bandwidth,
               same_node ? 3000 : kNetworkHopNs);
  }
  return ns;
}

double LinkSendNs(const DeviceSpec& device, double bytes, bool crosses_nodes) {
  const double bandwidth = crosses_nodes ? device.network_bandwidth : device.link_bandwidth;
  const double latency = crosses_nodes ? kNetworkHopNs : HopNs(device);
  return device.launch_ns + latency + bytes / (bandwidth * kLinkEfficiency) * 1e9;
}

}  // namespace tactus::cost
