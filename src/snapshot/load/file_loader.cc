#include "snapshot/load/file_loader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "model/reasons.h"
#include "snapshot/load/fetch_plan.h"

namespace torpor::snapshot {
namespace {

// What an ordinary index of so many populated bytes takes, for the first attempt.
int64_t LikelyIndexMemory(int64_t populated_bytes) {
  const int64_t blocks = populated_bytes / kTszBlockBytesDefault + 1;
  const int64_t extents = populated_bytes / 8192 + 2;
  return (kTszIndexMemoryFactor + 1) * (24 * blocks + 5 * extents + 64);
}

Status WriteAt(int fd, const char* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t n = pwrite(fd, data, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write");
    data += n;
    bytes -= n;
    offset += n;
  }
  return OkStatus();
}

// Buffers for one range and for one block of it.
struct Slot {
  Buffer range;
  Buffer raw;
};

class Loader {
 public:
  Loader(const FileLoadArgs& args, ByteBudget::Hold* hold)
      : args_(args), hold_(hold), object_(*args.file.object) {}

  // The tasks use this object.
  ~Loader() { AwaitTasks(0); }

  // 0 = done; else how much memory it takes. Nothing was made then.
  StatusOr<int64_t> Run() {
    ASSIGN_OR_RETURN(ObjectTail tail, ReadTail(args_.read, object_.bytes));
    const int64_t fixed = static_cast<int64_t>(tail.bytes.size()) + tail.footer.index_bytes;
    if (!Holds(fixed)) return fixed + LikelyIndexMemory(args_.file.file.populated_bytes());
    ASSIGN_OR_RETURN(std::string frame, ReadIndexFrame(args_.read, tail, object_.index_sha256));
    ASSIGN_OR_RETURN(int64_t decoded, TszIndexDecodedBytes(frame));
    const int64_t index = fixed + kTszIndexMemoryFactor * decoded;
    if (!Holds(index)) return index + kFetchBytesMax + kTszBlockBytesDefault;
    ASSIGN_OR_RETURN(
        index_, DecodeTszIndex(frame, {args_.file.file.logical_bytes(), tail.footer.index_offset}));
    ranges_ = PlanFetch(index_, tail.offset, args_.resources->threads());
    for (const FetchRange& range : ranges_) range_bytes_ = std::max(range_bytes_, range.bytes);
    for (const TszBlock& block : index_.blocks) {
      raw_bytes_ = std::max<int64_t>(raw_bytes_, block.raw_bytes);
    }
    slot_bytes_ = (range_bytes_ > 0 ? BufferPool::Rounded(range_bytes_) : 0) +
                  (raw_bytes_ > 0 ? BufferPool::Rounded(raw_bytes_) : 0);
    if (!Holds(index + slot_bytes_)) return index + slot_bytes_;

    args_.transfer->Advance(object_.bytes - tail.offset + tail.index_missing());
    ASSIGN_OR_RETURN(fd_, args_.staged->Create(args_.file.file.name(), args_.file.mode));
    if (ftruncate(fd_.get(), index_.logical_bytes) != 0) return ErrnoStatus(errno, "truncate");
    RETURN_IF_ERROR(LoadTail(tail));
    tail = {};
    RETURN_IF_ERROR(LoadRanges(tail_offset_));
    return 0;
  }

 private:
  // Whoever has the whole budget has enough: there is no more.
  bool Holds(int64_t bytes) {
    const int64_t missing = bytes - hold_->bytes();
    return missing <= 0 || hold_->bytes() >= args_.resources->memory()->total() ||
           hold_->TryGrow(missing);
  }

  // The blocks that came with the end of the object.
  Status LoadTail(const ObjectTail& tail) {
    tail_offset_ = tail.offset;
    const size_t first = ranges_.empty() ? 0 : ranges_.back().first_block + ranges_.back().blocks;
    if (first == index_.blocks.size()) return OkStatus();
    Buffer raw = args_.resources->buffers()->Take(raw_bytes_);
    for (size_t i = first; i < index_.blocks.size(); ++i) {
      const TszBlock& block = index_.blocks[i];
      RETURN_IF_ERROR(LoadBlock(
          block,
          std::string_view(tail.bytes)
              .substr(static_cast<size_t>(block.offset - tail.offset), block.compressed_bytes),
          raw.data()));
    }
    return OkStatus();
  }

  // Hands the ranges to the pool, as many at once as there is memory for.
  Status LoadRanges(int64_t tail_offset) {
    for (size_t next = 0; next < ranges_.size(); ++next) {
      ASSIGN_OR_RETURN(Slot slot, TakeSlot());
      const FetchRange range = ranges_[next];
      {
        MutexLock lock(&mu_);
        ++running_;
      }
      // Functions in a queue are copied, so the buffers travel behind a pointer.
      auto buffers = std::make_shared<Slot>(std::move(slot));
      args_.resources->fetchers()->Run([this, range, buffers, tail_offset] {
        Status status = LoadRange(range, *buffers, tail_offset);
        MutexLock lock(&mu_);
        if (!status.ok() && failed_.ok()) failed_ = std::move(status);
        free_.push_back(std::move(*buffers));
        --running_;
        changed_.SignalAll();
      });
    }
    AwaitTasks(0);
    MutexLock lock(&mu_);
    return std::move(failed_);
  }

  StatusOr<Slot> TakeSlot() {
    for (;;) {
      RETURN_IF_ERROR(args_.transfer->Check());
      {
        MutexLock lock(&mu_);
        if (!failed_.ok()) return std::move(failed_);
        // Somebody waits: all but one are given back as they come.
        while (slots_ > 1 && !free_.empty() && hold_->Wanted()) {
          free_.pop_back();
          --slots_;
          hold_->Shrink(slot_bytes_);
        }
        if (!free_.empty()) {
          Slot slot = std::move(free_.back());
          free_.pop_back();
          return slot;
        }
      }
      const bool first = slots_ == 0;
      if (first || (slots_ < kFetchesMax && hold_->TryGrow(slot_bytes_))) {
        ++slots_;
        BufferPool* buffers = args_.resources->buffers();
        return Slot{buffers->Take(range_bytes_), buffers->Take(raw_bytes_)};
      }
      MutexLock lock(&mu_);
      while (free_.empty()) changed_.Wait(&mu_);
    }
  }

  void AwaitTasks(int at_most) {
    MutexLock lock(&mu_);
    while (running_ > at_most) changed_.Wait(&mu_);
  }

  Status LoadRange(const FetchRange& range, const Slot& slot, int64_t tail_offset) {
    RETURN_IF_ERROR(args_.transfer->Check());
    RETURN_IF_ERROR(args_.read(range.offset, range.bytes, slot.range.data()));
    // What is also in the tail was counted with it.
    args_.transfer->Advance(std::min(range.bytes, tail_offset - range.offset));
    for (size_t i = range.first_block; i < range.first_block + range.blocks; ++i) {
      const TszBlock& block = index_.blocks[i];
      RETURN_IF_ERROR(LoadBlock(
          block, {slot.range.data() + (block.offset - range.offset), block.compressed_bytes},
          slot.raw.data()));
    }
    return OkStatus();
  }

  Status LoadBlock(const TszBlock& block, std::string_view frame, char* raw) const {
    {
      ASSIGN_OR_RETURN(Codecs::Place place,
                       args_.resources->codecs()->Enter(Urgency::kDownload, *args_.transfer));
      RETURN_IF_ERROR(place.decoder().Decode(block, frame, raw));
    }
    // Without bases the extents follow each other among the populated bytes, too.
    const int64_t end = block.stream_offset + block.raw_bytes;
    auto extent = std::partition_point(
        index_.extents.begin(), index_.extents.end(),
        [&](const TszExtent& e) { return e.from + e.length <= block.stream_offset; });
    for (; extent != index_.extents.end() && extent->from < end; ++extent) {
      const int64_t from = std::max(extent->from, block.stream_offset);
      const int64_t bytes = std::min(extent->from + extent->length, end) - from;
      RETURN_IF_ERROR(WriteAt(fd_.get(), raw + (from - block.stream_offset), bytes,
                              extent->offset + (from - extent->from)));
    }
    return OkStatus();
  }

  const FileLoadArgs& args_;
  ByteBudget::Hold* const hold_;
  const ManifestObject& object_;
  TszIndex index_;
  std::vector<FetchRange> ranges_;
  int64_t range_bytes_ = 0;
  int64_t raw_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  int64_t tail_offset_ = 0;
  UniqueFd fd_;
  size_t slots_ = 0;  // that exist

  Mutex mu_;
  CondVar changed_;
  int running_ GUARDED_BY(mu_) = 0;
  std::vector<Slot> free_ GUARDED_BY(mu_);
  Status failed_ GUARDED_BY(mu_);  // the first error of a range
};

}  // namespace

Status LoadFile(const FileLoadArgs& args) {
  const ManifestObject& object = *args.file.object;
  const int64_t populated = args.file.file.populated_bytes();
  int64_t minimum = std::min(object.bytes, kTszTailBytes) + LikelyIndexMemory(populated) +
                    BufferPool::Rounded(std::min(populated, kTszBlockBytesDefault));
  if (object.bytes > kTszTailBytes) {
    minimum += BufferPool::Rounded(std::min(object.bytes, kFetchBytesMax));
  }
  // Again when the index turns out to be larger than most: then with what it needs, which its hash
  // fixes, and holding nothing while it waits.
  for (;;) {
    ASSIGN_OR_RETURN(ByteBudget::Hold hold,
                     args.resources->memory()->Admit(Urgency::kDownload, minimum, *args.transfer));
    Loader loader(args, &hold);
    ASSIGN_OR_RETURN(minimum, loader.Run());
    if (minimum == 0) return OkStatus();
  }
}

}  // namespace torpor::snapshot
