#include "snapshot/load/staged_files.h"

#include <fcntl.h>

#include "base/uuid.h"
#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

constexpr mode_t kDirectoryMode = 0750;

Status Occupied(const std::string& name) {
  return Fail(reasons::kWrongState,
              fmt::format("{} exists in the target directory already; give an empty one", name));
}

}  // namespace

StagedFiles::StagedFiles(const os::DirFd* directory)
    : directory_(directory), prefix_(fmt::format(".fetch-{}-", RandomHex(8))) {}

StagedFiles::~StagedFiles() {
  MutexLock lock(&mu_);
  if (committed_) return;
  // Errors are left to whoever owns the directory: it is scratch space.
  for (const Entry& file : files_) {
    directory_->Unlink(file.temp.empty() ? file.name : file.temp).IgnoreError();
  }
  for (const std::string& made : directories_) directory_->Rmdir(made).IgnoreError();
}

Status StagedFiles::CheckFree(const std::string& name) const {
  auto stat = directory_->Stat(name);
  if (stat.ok()) return Occupied(name);
  return stat.status().code() == Code::kNotFound ? OkStatus() : stat.status();
}

StatusOr<UniqueFd> StagedFiles::Create(const std::string& name, mode_t mode) {
  MutexLock lock(&mu_);
  const std::string temp = prefix_ + std::to_string(files_.size());
  ASSIGN_OR_RETURN(UniqueFd fd, directory_->OpenRegular(temp, O_RDWR | O_CREAT | O_EXCL, 0600));
  files_.push_back({temp, name});
  RETURN_IF_ERROR(os::SetOwnerAndMode(fd.get(), {}, mode));
  return fd;
}

Status StagedFiles::Commit() {
  MutexLock lock(&mu_);
  for (Entry& file : files_) {
    if (size_t slash = file.name.find('/'); slash != std::string::npos) {
      const std::string parent = file.name.substr(0, slash);
      Status made = directory_->MkdirExclusive(parent, kDirectoryMode);
      if (made.ok()) directories_.push_back(parent);
      if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
    }
    Status renamed = directory_->RenameNoReplace(file.temp, file.name);
    if (renamed.code() == Code::kAlreadyExists) return Occupied(file.name);
    RETURN_IF_ERROR(renamed);
    file.temp.clear();
  }
  committed_ = true;
  return OkStatus();
}

}  // namespace torpor::snapshot
