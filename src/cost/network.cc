// Networks from link figures: distances of devices, ring all-reduce and point-to-point sends.
//
// Devices are numbered stage by stage and fill one node after the other, so that n neighbours lie in one group of fast
// links (n <= group), in one node (n <= node: PCIe joins them), or on several nodes.
#include <algorithm>

#include "cost/operator_times.h"

namespace tactus::cost {
namespace {

// Shares of a line's raw bandwidth that large messages reach. Links, PCIe between peers and InfiniBand: NCCL's bus
// bandwidth on NVSwitch, PCIe and InfiniBand machines (23.7 of 32, 48.8 of 64, 35.4 of 50 GB/s). TCP over 100 Gb/s
// Ethernet: 2.3 and 2.9 of 12.5 GB/s (docs/concepts/cost_model.md, "Networks").
constexpr double kLinkEfficiency = 0.75;
constexpr double kTcpEfficiency = 0.2;

// One step between two neighbours of a link: kernel synchronisation.
constexpr double kLinkHopNs = 700;

// Bandwidth of large messages, bytes/s, and time of one ring step beside its bytes.
struct Way {
  double bandwidth = 0;
  double hop_ns = 0;
};

// The slowest connection between two of `among` neighbours in one node.
Way InsideNode(const DeviceSpec& d, int32_t among) {
  if (among <= d.group) return {d.link_bandwidth * kLinkEfficiency, kLinkHopNs};
  return {d.peer_bandwidth > 0 ? d.peer_bandwidth : d.pcie_bandwidth * kLinkEfficiency, d.peer_hop_ns};
}

Way BetweenNodes(const DeviceSpec& d) {
  return {d.network_bandwidth * (d.network == "ethernet" ? kTcpEfficiency : kLinkEfficiency), d.network_hop_ns};
}

}  // namespace

// One ring through all devices (Patarasuk and Yuan, 2009): 2 (n - 1) steps, and each device sends 2 (n - 1) / n of the
// bytes. The slowest connection between two neighbours of the ring sets the pace: inside a node PCIe, unless links join
// all of it. Between nodes NCCL uses one ring per network card, so a node's devices combine their network shares; one
// step out of as many as a node has devices leaves the node.
double RingAllReduceNs(const DeviceSpec& device, double bytes, int32_t gpus, int32_t apart) {
  if (gpus <= 1) return 0;
  const int32_t in_node = std::max(1, device.node / apart);
  const int32_t nodes = (gpus + in_node - 1) / in_node;
  const int32_t together = (gpus + nodes - 1) / nodes;  // devices of the fullest node
  const double per_node = static_cast<double>(gpus) / nodes;
  const double steps = 2 * (gpus - 1), sent = steps / gpus * bytes;
  const Way inside = InsideNode(device, together * apart);
  if (nodes == 1) return 2 * device.launch_ns + steps * inside.hop_ns + sent / inside.bandwidth * 1e9;
  const Way between = BetweenNodes(device);
  const double network = per_node * between.bandwidth;
  const double bandwidth = together > 1 ? std::min(inside.bandwidth, network) : network;
  return 2 * device.launch_ns + steps / per_node * between.hop_ns + steps * (1 - 1 / per_node) * inside.hop_ns +
         sent / bandwidth * 1e9;
}

double LinkSendNs(const DeviceSpec& device, double bytes, int32_t among) {
  const Way way = among <= device.node ? InsideNode(device, among) : BetweenNodes(device);
  return device.launch_ns + way.hop_ns + bytes / way.bandwidth * 1e9;
}

}  // namespace tactus::cost
