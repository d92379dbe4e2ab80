#include "vidur/vidur_replay.h"

#include <algorithm>
#include <deque>

namespace tactus::vidur {
namespace {

struct Live {
  int32_t prompt = 0;  // grows at a restart to all tokens processed so far
  int32_t total = 0;   // prompt + output tokens, constant
  int32_t done = 0;    // tokens processed, the newest generated one included
  int32_t blocks = 0;
  bool decoding = false;
};

class Replay {
 public:
  Replay(const Rules& rules, const std::vector<TraceRequest>& requests, const Tables& tables)
      : rules_(rules), requests_(requests), tables_(tables), free_(rules.blocks) {
    for (const TraceRequest& r : requests)
      live_.push_back({r.prompt_tokens, r.prompt_tokens + r.output_tokens, 0, 0, false});
    run_.requests.resize(requests.size());
  }

  Log Go() {
    double now = 0;
    while (!run_.left_scope) {
      while (next_ < requests_.size() && requests_[next_].arrival_s <= now)
        waiting_.push_back(static_cast<int32_t>(next_++));
      BeginStep();
      switch (rules_.policy) {
        case Policy::kSarathi:
          Sarathi();
          break;
        case Policy::kVllm:
          Vllm();
          break;
        case Policy::kOrca:
          Orca();
          break;
      }
      if (run_.left_scope) break;
      if (batch_.empty()) {
        if (next_ == requests_.size()) break;
        now = requests_[next_].arrival_s;
        continue;
      }
      now = EndStep(now);
    }
    return std::move(run_);
  }

 private:
  Live& At(int32_t id) { return live_[static_cast<size_t>(id)]; }

  void BeginStep() {
    row_ = StepRow();
    batch_.clear();
    left_.clear();
    tokens_ = 0;
  }

  void TakeDecode(int32_t id) {
    Live& r = At(id);
    if (r.done > r.blocks * rules_.block_size) {
      ++r.blocks;
      --free_;
    }
    batch_.push_back(id);
    ++tokens_;
    ++row_.decode_tokens;
    row_.decode_context_sum += r.done;
    row_.decode_id_sum += id;
  }

  void TakeChunk(int32_t id, int32_t chunk) {
    batch_.push_back(id);
    tokens_ += chunk;
    row_.prefill_tokens += chunk;
    row_.prefills.push_back({id, At(id).done, chunk});
  }

  bool Fits(int32_t id) const {
    const int32_t need = rules_.blocks_for(live_[static_cast<size_t>(id)].prompt);
    return free_ - need >= rules_.watermark_blocks();
  }

  void Admit(int32_t chunk) {
    const int32_t id = waiting_.front();
    waiting_.pop_front();
    Live& r = At(id);
    r.blocks = rules_.blocks_for(rules_.policy == Policy::kOrca ? rules_.max_request_tokens : r.prompt);
    free_ -= r.blocks;
    ++held_;
    // A correct engine cannot restart a sequence in the plan that preempts it.
    for (const Restart& restart : row_.restarted) run_.left_scope = run_.left_scope || restart.id == id;
    TakeChunk(id, chunk);
  }

  void Preempt(int32_t id) {
    Live& r = At(id);
    row_.restarted.push_back({id, r.done, r.decoding});
    run_.left_scope = run_.left_scope || !r.decoding;  // Vidur's rules are known to be wrong from here on
    ++run_.requests[static_cast<size_t>(id)].restarts;
    free_ += r.blocks;
    --held_;
    r = {r.done, r.total, 0, 0, false};
    waiting_.push_front(id);
  }

  // running_[*i] decodes, if necessary after preempting later sequences of the list.
  void DecodeOrPreempt(size_t* i) {
    while (free_ < 1 && running_.size() > *i + 1) {
      Preempt(running_.back());
      running_.pop_back();
    }
    if (free_ < 1) {
      Preempt(running_[*i]);
    } else {
      TakeDecode(running_[*i]);
    }
  }

  void Sarathi() {
    std::vector<int32_t> aside;
    size_t i = 0;
    for (; i < running_.size() && static_cast<int32_t>(batch_.size()) < rules_.batch_cap; ++i) {
      if (At(running_[i]).decoding) {
        DecodeOrPreempt(&i);
      } else {
        aside.push_back(running_[i]);
      }
    }
    left_.assign(running_.begin() + static_cast<ptrdiff_t>(std::min(i, running_.size())), running_.end());
    for (const int32_t id : aside) {
      const int32_t chunk = std::min(At(id).prompt - At(id).done, rules_.chunk - tokens_);
      if (chunk > 0) {
        TakeChunk(id, chunk);
      } else {
        left_.push_back(id);
      }
    }
    while (!waiting_.empty() && held_ < rules_.batch_cap && static_cast<int32_t>(batch_.size()) < rules_.batch_cap &&
           Fits(waiting_.front()) && tokens_ < rules_.chunk) {
      Admit(std::min(At(waiting_.front()).prompt, rules_.chunk - tokens_));
    }
  }

  void Vllm() {
    int32_t longest = 0;
    while (!waiting_.empty() && Fits(waiting_.front())) {
      const int32_t id = waiting_.front();
      longest = std::max(longest, At(id).prompt);
      const auto count = static_cast<int64_t>(batch_.size());
      if ((count + 1) * longest > rules_.max_tokens_in_batch) break;
      if (held_ == rules_.batch_cap || count == rules_.batch_cap) break;
      Admit(At(id).prompt);
    }
    if (!batch_.empty()) {
      left_ = running_;
      return;
    }
    std::sort(running_.begin(), running_.end());
    size_t i = 0;
    for (; i < running_.size() && static_cast<int32_t>(batch_.size()) < rules_.batch_cap; ++i) DecodeOrPreempt(&i);
    left_.assign(running_.begin() + static_cast<ptrdiff_t>(std::min(i, running_.size())), running_.end());
  }

  void Orca() {
    for (const int32_t id : running_) {
      batch_.push_back(id);
      ++tokens_;
      ++row_.decode_tokens;
      row_.decode_context_sum += At(id).done;
      row_.decode_id_sum += id;
    }
    while (!waiting_.empty() && static_cast<int32_t>(batch_.size()) < rules_.max_running() &&
           free_ >= rules_.blocks_for(rules_.max_request_tokens)) {
      Admit(At(waiting_.front()).prompt);
    }
  }

  double EndStep(double start_s) {
    std::vector<ChunkShape> chunks;
    for (const Share& p : row_.prefills) chunks.push_back({p.context, p.chunk});
    row_.start_s = start_s;
    row_.end_s = start_s + tables_.Seconds(chunks, row_.decode_tokens, row_.decode_context_sum);
    row_.sequences = static_cast<int32_t>(batch_.size());
    row_.blocks_used = rules_.blocks - free_;
    row_.waiting = static_cast<int64_t>(waiting_.size());

    size_t next_chunk = 0;
    std::sort(left_.begin(), left_.end());
    running_ = left_;
    for (const int32_t id : batch_) {
      Live& r = At(id);
      RequestRow& out = run_.requests[static_cast<size_t>(id)];
      if (out.scheduled_s < 0) out.scheduled_s = start_s;
      bool token = r.decoding;
      if (r.decoding) {
        ++r.done;
      } else {
        r.done += row_.prefills[next_chunk++].chunk;
        if (r.done == r.prompt) {
          token = r.decoding = true;
          ++r.done;
        }
      }
      out.tokens_emitted += token ? 1 : 0;
      if (token && out.first_token_s < 0) out.first_token_s = row_.end_s;
      if (r.done == r.total) {
        out.completed_s = row_.end_s;
        free_ += r.blocks;
        r.blocks = 0;
        --held_;
      } else {
        running_.push_back(id);
      }
    }
    run_.steps.push_back(row_);
    return row_.end_s;
  }

  const Rules& rules_;
  const std::vector<TraceRequest>& requests_;
  const Tables& tables_;
  Log run_;
  std::vector<Live> live_;
  std::deque<int32_t> waiting_;
  std::vector<int32_t> running_;  // in the simulator's order
  std::vector<int32_t> left_;     // running sequences without an item in this step
  std::vector<int32_t> batch_;
  StepRow row_;
  int64_t free_ = 0;
  int32_t tokens_ = 0;  // in this step
  int32_t held_ = 0;    // requests that hold blocks
  size_t next_ = 0;     // first request that has not arrived yet
};

}  // namespace

Log ReplayRules(const Rules& rules, const std::vector<TraceRequest>& requests, const Tables& tables) {
  return Replay(rules, requests, tables).Go();
}

}  // namespace tactus::vidur
