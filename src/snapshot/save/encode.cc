#include "snapshot/save/encode.h"

#include <unistd.h>
#include <zstd.h>

#include <cerrno>

#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

constexpr size_t kPieceBytes = 1 << 20;
// Below this the start of the threads costs more than they save.
constexpr int64_t kThreadedFileBytesMin = 8 << 20;
constexpr int kJobBytes = 2 << 20;  // of one compressing thread; bounds their memory

class Encoder {
 public:
  Encoder(int fd, int64_t logical_bytes, Transfer* transfer,
          const std::function<Status(std::string_view)>& out)
      : fd_(fd), size_(logical_bytes), transfer_(transfer), out_(out) {}

  Status Init(const EncodeOptions& options) {
    RETURN_IF_ERROR(Set(ZSTD_c_compressionLevel, options.zstd_level));
    RETURN_IF_ERROR(Set(ZSTD_c_checksumFlag, 1));
    if (options.threads > 1 && size_ >= kThreadedFileBytesMin) {
      RETURN_IF_ERROR(Set(ZSTD_c_nbWorkers, options.threads));
      RETURN_IF_ERROR(Set(ZSTD_c_jobSize, kJobBytes));
    }
    return Checked(ZSTD_CCtx_setPledgedSrcSize(context_.get(), static_cast<uint64_t>(size_)))
        .status();
  }

  StatusOr<int64_t> Run() {
    int64_t populated = 0;
    for (int64_t at = 0; at < size_;) {
      ASSIGN_OR_RETURN(int64_t data, Seek(at, SEEK_DATA));
      RETURN_IF_ERROR(FeedZeros(data - at));
      if (data == size_) break;
      ASSIGN_OR_RETURN(int64_t hole, Seek(data, SEEK_HOLE));
      RETURN_IF_ERROR(FeedFile(data, hole));
      populated += hole - data;
      at = hole;
    }
    RETURN_IF_ERROR(Feed({}, ZSTD_e_end));
    return populated;
  }

 private:
  StatusOr<size_t> Checked(size_t result) {
    if (!ZSTD_isError(result)) return result;
    return Fail(reasons::kInternal, fmt::format("zstd: {}", ZSTD_getErrorName(result)));
  }

  Status Set(ZSTD_cParameter parameter, int value) {
    return Checked(ZSTD_CCtx_setParameter(context_.get(), parameter, value)).status();
  }

  // The next data or hole at or behind `from`; the end when there is none.
  StatusOr<int64_t> Seek(int64_t from, int whence) {
    off_t at = lseek(fd_, from, whence);
    if (at >= 0) return std::min<int64_t>(at, size_);
    if (errno == ENXIO) return size_;
    return ErrnoStatus(errno, "lseek");
  }

  Status FeedZeros(int64_t bytes) {
    static const std::string zeros(kPieceBytes, '\0');
    while (bytes > 0) {
      size_t n = static_cast<size_t>(std::min<int64_t>(bytes, kPieceBytes));
      RETURN_IF_ERROR(Feed(std::string_view(zeros).substr(0, n), ZSTD_e_continue));
      bytes -= static_cast<int64_t>(n);
    }
    return OkStatus();
  }

  Status FeedFile(int64_t begin, int64_t end) {
    while (begin < end) {
      size_t want = static_cast<size_t>(std::min<int64_t>(end - begin, kPieceBytes));
      ssize_t n = pread(fd_, input_.data(), want, begin);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoStatus(errno, "read");
      if (n == 0) {
        return Fail(reasons::kSnapshotCorrupt,
                    fmt::format("the file was cut at {} of {} bytes", begin, size_));
      }
      RETURN_IF_ERROR(
          Feed(std::string_view(input_.data(), static_cast<size_t>(n)), ZSTD_e_continue));
      begin += n;
    }
    return OkStatus();
  }

  Status Feed(std::string_view bytes, ZSTD_EndDirective directive) {
    RETURN_IF_ERROR(transfer_->Check());
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (;;) {
      ZSTD_outBuffer out{output_.data(), output_.size(), 0};
      ASSIGN_OR_RETURN(size_t left,
                       Checked(ZSTD_compressStream2(context_.get(), &out, &in, directive)));
      if (out.pos > 0) RETURN_IF_ERROR(out_(std::string_view(output_.data(), out.pos)));
      if (directive == ZSTD_e_end ? left == 0 : in.pos == in.size) break;
    }
    transfer_->Advance(static_cast<int64_t>(bytes.size()));
    return OkStatus();
  }

  const int fd_;
  const int64_t size_;
  Transfer* const transfer_;
  const std::function<Status(std::string_view)>& out_;
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::string input_ = std::string(kPieceBytes, '\0');
  std::string output_ = std::string(ZSTD_CStreamOutSize(), '\0');
};

}  // namespace

int64_t EncodedBound(int64_t logical_bytes) {
  // ZSTD_compressBound is for one call; a stream cut into jobs adds a little for each block.
  return static_cast<int64_t>(ZSTD_compressBound(static_cast<size_t>(logical_bytes))) +
         logical_bytes / 1024 + 1024;
}

StatusOr<int64_t> EncodeFile(int fd, int64_t logical_bytes, const EncodeOptions& options,
                             Transfer* transfer,
                             const std::function<Status(std::string_view)>& out) {
  Encoder encoder(fd, logical_bytes, transfer, out);
  RETURN_IF_ERROR(encoder.Init(options));
  return encoder.Run();
}

}  // namespace torpor::snapshot
