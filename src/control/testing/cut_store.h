#pragma once
// A store whose process ends at a chosen commit: before it, or just after it, when nobody has heard
// of it yet. From then on nothing is written. PowerCut gives what a power cut at this moment
// leaves.

#include <memory>
#include <vector>

#include "control/store/memory/memory_store.h"
#include "control/testing/forwarding_store.h"
#include "model/reasons.h"

namespace torpor::control {

class CutStore : public ForwardingStore {
 public:
  // `before`: what `store` holds already.
  explicit CutStore(Store* store, std::vector<Batch> before = {})
      : ForwardingStore(store), log_(std::move(before)), durable_(log_.size()) {}

  // The `commit`-th one from now on, counted from 1.
  void CutAt(int commit, bool after) {
    left_ = commit;
    after_ = after;
    cut_ = false;
  }
  bool cut() const { return cut_; }
  // The next process over the same store.
  void Heal() {
    left_ = 0;
    cut_ = false;
  }

  // The commits that a power cut leaves.
  std::vector<Batch> Left() const {
    return {log_.begin(), log_.begin() + static_cast<ptrdiff_t>(durable_)};
  }
  std::unique_ptr<MemoryStore> PowerCut() const {
    auto left = std::make_unique<MemoryStore>();
    for (size_t i = 0; i < durable_; ++i) {
      if (!left->Commit(log_[i]).ok()) return nullptr;
    }
    return left;
  }

  Status Commit(const Batch& batch) override {
    if (cut_) return Gone();
    const bool last = left_ > 0 && --left_ == 0;
    cut_ = last;
    if (last && !after_) return Gone();
    RETURN_IF_ERROR(ForwardingStore::Commit(batch));
    log_.push_back(batch);
    if (batch.durable) durable_ = log_.size();
    return last ? Gone() : OkStatus();
  }

 private:
  static Status Gone() { return Fail(reasons::kStoreUnavailable, "the process has ended"); }

  std::vector<Batch> log_;
  size_t durable_;
  int left_ = 0;
  bool after_ = false;
  bool cut_ = false;
};

}  // namespace torpor::control
