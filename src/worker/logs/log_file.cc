#include "worker/logs/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

namespace torpor::worker {

Status LogFile::OpenCurrent() {
  ASSIGN_OR_RETURN(fd_, dir_->OpenRegular(name_, O_WRONLY | O_APPEND | O_CREAT, 0600));
  struct stat info = {};
  if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, "stat " + name_);
  size_ = info.st_size;
  return OkStatus();
}

Status LogFile::Append(std::string_view line) {
  if (!fd_.valid()) RETURN_IF_ERROR(OpenCurrent());
  if (size_ > 0 && size_ + static_cast<int64_t>(line.size()) > bytes_max_) {
    fd_.Reset();
    RETURN_IF_ERROR(dir_->Rename(name_, name_ + ".1"));
    RETURN_IF_ERROR(OpenCurrent());
  }
  RETURN_IF_ERROR(os::WriteAll(fd_.get(), line));
  size_ += static_cast<int64_t>(line.size());
  return OkStatus();
}

}  // namespace torpor::worker
