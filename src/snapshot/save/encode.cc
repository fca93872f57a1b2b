#include "snapshot/save/encode.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>

#include "model/reasons.h"
#include "snapshot/format/sha256.h"
#include "snapshot/format/tsz_block.h"
#include "snapshot/save/scan.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kPageBytes = 4096;
// Zero pages are dropped while the index has fewer extents, so that it stays within its limits.
constexpr int64_t kExtentsForZeros = 1 << 20;

bool IsZero(const char* bytes, size_t size) {
  static const char kZeros[kPageBytes] = {};
  return memcmp(bytes, kZeros, size) == 0;
}

// A block and its frame on their way through the pool.
struct Job {
  Buffer raw;
  Buffer frame;  // none when the block is compressed where it is sent from
  int64_t raw_bytes = 0;
  int64_t frame_bytes = 0;
  TszHash hash{};
  Status status;
  bool done = false;
};

class FileEncoder {
 public:
  FileEncoder(const EncodeArgs& args, ObjectWriter* writer)
      : args_(args),
        writer_(writer),
        // A block alone would only wait for another thread.
        inline_(args.resources->threads() == 1 || args.bound.blocks <= 1),
        jobs_max_(inline_ ? 1 : 2 * args.resources->threads() + 1) {}

  ~FileEncoder() {
    for (const auto& job : in_flight_) AwaitDone(*job);
  }

  StatusOr<EncodedFile> Run() {
    Scanner scanner(args_.fd, args_.logical_bytes);
    int64_t end = 0;
    for (;;) {
      ASSIGN_OR_RETURN(FileRange range, scanner.Next());
      args_.transfer->Advance(range.offset - end);
      if (range.length == 0) break;
      RETURN_IF_ERROR(EncodeRange(range));
      end = range.offset + range.length;
    }
    if (current_ != nullptr && current_->raw_bytes > 0) RETURN_IF_ERROR(Submit());
    while (!in_flight_.empty()) RETURN_IF_ERROR(FinishOldest());
    current_.reset();
    free_.clear();
    return WriteIndex();
  }

 private:
  Status EncodeRange(FileRange range) {
    read_bytes_ += range.length;
    if (read_bytes_ > args_.bound.data_bytes) {
      return Fail(reasons::kInternal, "the file has more data than when its upload was planned");
    }
    while (range.length > 0) {
      RETURN_IF_ERROR(args_.transfer->Check());
      if (current_ == nullptr) RETURN_IF_ERROR(TakeJob());
      const int64_t room = args_.bound.raw_bytes - current_->raw_bytes;
      const int64_t n = std::min(room, range.length);
      RETURN_IF_ERROR(Read(current_->raw.data() + current_->raw_bytes, n, range.offset));
      KeepData(n, range.offset);
      args_.transfer->Advance(n);
      range.offset += n;
      range.length -= n;
      if (current_->raw_bytes == args_.bound.raw_bytes) RETURN_IF_ERROR(Submit());
    }
    return OkStatus();
  }

  Status Read(char* out, int64_t bytes, int64_t offset) const {
    while (bytes > 0) {
      const ssize_t n = pread(args_.fd, out, static_cast<size_t>(bytes), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read");
      if (n == 0) {
        return Fail(reasons::kSnapshotCorrupt,
                    fmt::format("the file was cut at {} of {} bytes", offset, args_.logical_bytes));
      }
      out += n;
      bytes -= n;
      offset += n;
    }
    return OkStatus();
  }

  // Of the `bytes` just read behind the block, keeps what is not a zero page.
  void KeepData(int64_t bytes, int64_t offset) {
    char* from = current_->raw.data() + current_->raw_bytes;
    const int64_t end = offset + bytes;
    while (offset < end) {
      // A run of pages that are kept, then one of pages that are not.
      const int64_t kept = RunOf(from, offset, end, /*zeros=*/false);
      if (kept > 0) {
        char* to = current_->raw.data() + current_->raw_bytes;
        if (to != from) memmove(to, from, static_cast<size_t>(kept));
        index_.AddExtent(offset, kept);
        current_->raw_bytes += kept;
      }
      const int64_t dropped = RunOf(from + kept, offset + kept, end, /*zeros=*/true);
      from += kept + dropped;
      offset += kept + dropped;
    }
  }

  // How many bytes from `offset` on are such pages. Pieces of pages are kept, but for the end of
  // the file: dropping them would make extents smaller than a page.
  int64_t RunOf(const char* from, int64_t offset, int64_t end, bool zeros) const {
    const int64_t begin = offset;
    while (offset < end) {
      const int64_t n = std::min(kPageBytes - offset % kPageBytes, end - offset);
      const bool whole =
          n == kPageBytes || (offset % kPageBytes == 0 && offset + n == args_.logical_bytes);
      const bool zero = whole && index_.extents() < kExtentsForZeros &&
                        IsZero(from + (offset - begin), static_cast<size_t>(n));
      if (zero != zeros) break;
      offset += n;
    }
    return offset - begin;
  }

  // Buffers for the next block: free ones, new ones, or those of the oldest block.
  Status TakeJob() {
    while (!in_flight_.empty() && IsDone(*in_flight_.front())) RETURN_IF_ERROR(FinishOldest());
    GiveBackSurplus();
    while (free_.empty()) {
      const bool first = jobs_ == 0;
      const int64_t pair = args_.plan.pair_bytes;
      if (first || (jobs_ < jobs_max_ && args_.hold->bytes() + pair <= args_.plan.held_bytes_max &&
                    args_.hold->TryGrow(pair))) {
        auto job = std::make_unique<Job>();
        job->raw = args_.resources->buffers()->Take(args_.bound.raw_bytes);
        if (args_.bound.blocks > 1) {
          job->frame = args_.resources->buffers()->Take(TszBlockBound(args_.bound.raw_bytes));
        }
        ++jobs_;
        free_.push_back(std::move(job));
      } else {
        RETURN_IF_ERROR(FinishOldest());
      }
    }
    current_ = std::move(free_.back());
    free_.pop_back();
    current_->raw_bytes = 0;
    current_->done = false;
    return OkStatus();
  }

  void GiveBackSurplus() {
    if (!args_.hold->Wanted()) return;
    while (jobs_ > 1 && !free_.empty()) {
      free_.pop_back();
      --jobs_;
      args_.hold->Shrink(args_.plan.pair_bytes);
    }
    writer_->GiveBackSurplus();
  }

  Status Submit() {
    Job* job = current_.get();
    if (job->frame.size() == 0) return SubmitInPlace();
    in_flight_.push_back(std::move(current_));
    if (inline_) {
      Compress(job);
      return FinishOldest();
    }
    args_.resources->encoders()->Run([this, job] { Compress(job); });
    return OkStatus();
  }

  // The only block of a file: its frame is written to where the object is sent from.
  Status SubmitInPlace() {
    const std::string_view raw = current_->raw.View(current_->raw_bytes);
    ASSIGN_OR_RETURN(char* space, writer_->Space(TszBlockBound(current_->raw_bytes)));
    ASSIGN_OR_RETURN(Codecs::Place place,
                     args_.resources->codecs()->Enter(Urgency::kUpload, *args_.transfer));
    ASSIGN_OR_RETURN(int64_t bytes, place.encoder().Encode(raw, space));
    writer_->Filled(bytes);
    index_.AddBlock(bytes, current_->raw_bytes, TszHashOf({space, static_cast<size_t>(bytes)}));
    current_.reset();
    return OkStatus();
  }

  void Compress(Job* job) {
    Status status = CompressTo(job);
    MutexLock lock(&mu_);
    job->status = std::move(status);
    job->done = true;
    changed_.SignalAll();
  }

  Status CompressTo(Job* job) const {
    ASSIGN_OR_RETURN(Codecs::Place place,
                     args_.resources->codecs()->Enter(Urgency::kUpload, *args_.transfer));
    ASSIGN_OR_RETURN(job->frame_bytes,
                     place.encoder().Encode(job->raw.View(job->raw_bytes), job->frame.data()));
    job->hash = TszHashOf(job->frame.View(job->frame_bytes));
    return OkStatus();
  }

  bool IsDone(const Job& job) {
    MutexLock lock(&mu_);
    return job.done;
  }

  void AwaitDone(const Job& job) {
    MutexLock lock(&mu_);
    while (!job.done) changed_.Wait(&mu_);
  }

  Status FinishOldest() {
    AwaitDone(*in_flight_.front());
    std::unique_ptr<Job> job = std::move(in_flight_.front());
    in_flight_.pop_front();
    RETURN_IF_ERROR(std::move(job->status));
    job->status = OkStatus();
    RETURN_IF_ERROR(writer_->Append(job->frame.View(job->frame_bytes)));
    index_.AddBlock(job->frame_bytes, job->raw_bytes, job->hash);
    free_.push_back(std::move(job));
    return OkStatus();
  }

  StatusOr<EncodedFile> WriteIndex() {
    RETURN_IF_ERROR(args_.transfer->Check());
    ASSIGN_OR_RETURN(std::string frame,
                     index_.Finish(args_.logical_bytes, args_.bound.block_bytes));
    const TszFooter footer = TszFooterOf(writer_->bytes(), frame);
    RETURN_IF_ERROR(writer_->Append(frame));
    RETURN_IF_ERROR(writer_->Append(EncodeTszFooter(footer)));
    return EncodedFile{index_.populated_bytes(), Sha256Hex(frame)};
  }

  const EncodeArgs& args_;
  ObjectWriter* const writer_;
  const bool inline_;
  const size_t jobs_max_;
  TszIndexWriter index_;
  int64_t read_bytes_ = 0;
  size_t jobs_ = 0;  // that exist
  std::unique_ptr<Job> current_;
  std::vector<std::unique_ptr<Job>> free_;
  std::deque<std::unique_ptr<Job>> in_flight_;  // oldest first
  Mutex mu_;
  CondVar changed_;
};

}  // namespace

StatusOr<EncodedFile> EncodeFile(const EncodeArgs& args, ObjectWriter* writer) {
  return FileEncoder(args, writer).Run();
}

}  // namespace torpor::snapshot
