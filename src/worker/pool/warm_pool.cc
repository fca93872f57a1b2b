#include "worker/pool/warm_pool.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "model/reasons.h"
#include "worker/leaf_names.h"

namespace torpor::worker {
namespace {

constexpr char kState[] = "s";
constexpr char kActor[] = "actor";
constexpr Duration kKillTimeout = std::chrono::seconds(10);
// How long an idle pool sleeps; only to let sandboxes go that nobody wants any more.
constexpr Duration kLookAgain = std::chrono::minutes(1);

// Enough for runsc to start; what the actor may use is set when it comes.
constexpr os::CgroupLimits kWaitingLimits = {
    .memory_bytes = int64_t{128} << 20, .cpu_milli = 0, .processes_max = os::kSandboxProcessesMax};

// The last part of a slot's name: the path of a socket below it must stay short.
std::string DirectoryName(const std::string& name) {
  constexpr size_t kDigits = 12;
  return name.size() > kDigits ? name.substr(name.size() - kDigits) : name;
}

// Of an earlier process, whose sandboxes were killed with their leaves before anything started.
Status RemoveLeftovers(const WarmPool::Tools& tools, const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    RETURN_IF_ERROR(tools.runtime->CleanUp(entry.path().filename(), entry.path() / kState));
  }
  std::filesystem::remove_all(directory, error);
  return error ? ErrnoStatus(error.value(), "remove " + directory) : OkStatus();
}

void Keep(Status status, Status* first) {
  if (first->ok() && !status.ok()) *first = std::move(status);
}

}  // namespace

StatusOr<std::unique_ptr<WarmPool>> WarmPool::Start(Tools tools, Options options) {
  RETURN_IF_ERROR(RemoveLeftovers(tools, options.directory));
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  if (error) return ErrnoStatus(error.value(), "make " + options.directory);
  auto pool = std::unique_ptr<WarmPool>(new WarmPool(tools, std::move(options)));
  pool->thread_ = std::thread([raw = pool.get()] { raw->Run(); });
  return pool;
}

std::string ActorOfSlot(const std::string& pool_directory, const std::string& name) {
  std::ifstream file(pool_directory + "/" + DirectoryName(name) + "/" + kActor);
  std::string uid;
  std::getline(file, uid);
  return uid;
}

WarmPool::~WarmPool() { Shutdown(); }

void WarmPool::Shutdown() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  std::map<std::string, Line> lines;
  {
    MutexLock lock(&mu_);
    lines.swap(lines_);
  }
  for (auto& [key, line] : lines) {
    for (auto& slot : line.ready) Drop(std::move(slot), "shutdown");
  }
}

void WarmPool::NoteWake(const std::string& key, const runtime::StartArgs& args) {
  if (key.empty() || options_.slots_max == 0) return;
  MutexLock lock(&mu_);
  if (stopping_) return;
  Line& line = lines_[key];
  line.last_wake = tools_.clock->Now();
  line.not_before = std::max(line.not_before, line.last_wake + options_.make_after);
  line.recipe_is_fresh = true;
  line.recipe = runtime::StartArgs();
  line.recipe.spec = args.spec;
  line.recipe.bundles_dir = args.bundles_dir;
  changed_.SignalAll();
}

std::unique_ptr<PoolSlot> WarmPool::Pop(const std::string& key) {
  MutexLock lock(&mu_);
  auto it = lines_.find(key);
  if (key.empty() || it == lines_.end() || it->second.ready.empty()) return nullptr;
  it->second.recipe_is_fresh = false;
  std::unique_ptr<PoolSlot> slot = std::move(it->second.ready.front());
  it->second.ready.pop_front();
  return slot;
}

std::unique_ptr<PoolSlot> WarmPool::Take(const std::string& key, const std::string& actor_uid,
                                         const os::CgroupLimits& limits) {
  std::unique_ptr<PoolSlot> slot = Pop(key);
  if (slot == nullptr) return nullptr;
  Status status;
  if (!slot->leaf.empty()) {
    status = tools_.cgroups->SetLimits(slot->leaf, limits);
    if (status.ok()) status = tools_.cgroups->Freeze(slot->leaf, false);
  }
  if (status.ok() && !slot->sandbox->alive()) {
    status = Fail(reasons::kRuntimeFailed, "the sandbox has ended");
  }
  if (status.ok()) {
    std::ofstream file(slot->directory + "/" + kActor);
    file << actor_uid << '\n';
    file.close();
    if (!file) status = Fail(reasons::kInternal, "cannot write into " + slot->directory);
  }
  if (status.ok()) return slot;
  Drop(std::move(slot), std::string(status.message()));
  return nullptr;
}

void WarmPool::Drop(std::unique_ptr<PoolSlot> slot, std::string_view why) {
  Status status = Remove(*slot);
  LogInfo("pool: sandbox dropped", {{"slot", slot->name}, {"why", std::string(why)}});
  if (!status.ok()) {
    LogError("pool: sandbox not removed", {{"slot", slot->name}, {"error", status.ToString()}});
  }
}

Status WarmPool::Remove(PoolSlot& slot) {
  Status first;
  if (!slot.leaf.empty()) {
    Keep(tools_.cgroups->KillAll(slot.leaf, tools_.clock->Now() + kKillTimeout), &first);
  }
  if (slot.sandbox != nullptr) Keep(slot.sandbox->Discard(), &first);
  slot.sandbox.reset();
  if (slot.network != nullptr) Keep(slot.network->Remove(), &first);
  if (!slot.leaf.empty()) Keep(tools_.cgroups->Remove(slot.leaf), &first);
  std::error_code error;
  std::filesystem::remove_all(slot.directory, error);
  if (error) Keep(ErrnoStatus(error.value(), "remove " + slot.directory), &first);
  return first;
}

int WarmPool::ready() const {
  MutexLock lock(&mu_);
  int count = 0;
  for (const auto& [key, line] : lines_) count += static_cast<int>(line.ready.size());
  return count;
}

bool WarmPool::WaitReady(int count, MonotonicTime deadline) const {
  MutexLock lock(&mu_);
  while (true) {
    int ready = 0;
    for (const auto& [key, line] : lines_) ready += static_cast<int>(line.ready.size());
    if (ready == count) return true;
    if (!changed_.WaitUntil(&mu_, deadline)) return false;
  }
}

void WarmPool::Run() {
  while (true) {
    Work();
    MutexLock lock(&mu_);
    PoolPlan plan = Plan();
    if (!stopping_ && plan.make.empty() && plan.drop.empty()) {
      (void)changed_.WaitUntil(&mu_, NextLook());
    }
    if (stopping_) return;
  }
}

MonotonicTime WarmPool::NextLook() {
  MonotonicTime now = tools_.clock->Now();
  MonotonicTime next = now + kLookAgain;
  for (const auto& [key, line] : lines_) {
    if (line.not_before > now) next = std::min(next, line.not_before);
  }
  return next;
}

PoolPlan WarmPool::Plan() {
  std::vector<PoolLine> lines;
  for (const auto& [key, line] : lines_) {
    lines.push_back({.key = key,
                     .last_wake = line.last_wake,
                     .ready = static_cast<int>(line.ready.size()),
                     .making = line.making,
                     .not_before = line.not_before,
                     .may_make = line.recipe_is_fresh});
  }
  return PlanPool(
      std::move(lines), tools_.clock->Now(),
      {.slots_max = options_.slots_max, .per_key = options_.per_key, .recent = options_.recent});
}

void WarmPool::Work() {
  PoolPlan plan;
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    plan = Plan();
    for (const std::string& key : plan.forget) lines_.erase(key);
    for (const std::string& key : plan.make) ++lines_[key].making;
  }
  for (const std::string& key : plan.drop) {
    if (auto slot = Pop(key)) Drop(std::move(slot), "not woken lately");
  }
  for (const std::string& key : plan.make) MakeOne(key);
}

void WarmPool::MakeOne(const std::string& key) {
  runtime::StartArgs recipe;
  {
    MutexLock lock(&mu_);
    recipe = lines_[key].recipe;
  }
  auto made = Make(key, recipe);
  if (!made.ok()) LogInfo("pool: no sandbox made", {{"error", made.status().ToString()}});
  MutexLock lock(&mu_);
  Line& line = lines_[key];
  --line.making;
  if (made.ok()) {
    line.ready.push_back(std::move(*made));
  } else {
    line.not_before = tools_.clock->Now() + options_.retry_after;
  }
  changed_.SignalAll();
}

StatusOr<std::unique_ptr<PoolSlot>> WarmPool::Make(const std::string& key,
                                                   const runtime::StartArgs& recipe) {
  if (tools_.memory_images != nullptr) {
    // Begun when no actor is restored or captured, and not held: a wake does not wait for this.
    RETURN_IF_ERROR(tools_.memory_images
                        ->Acquire(Priority::kPrepare, tools_.clock->Now() + options_.make_timeout)
                        .status());
  }
  auto slot = std::make_unique<PoolSlot>();
  slot->key = key;
  slot->name = tools_.ids->NewUuid();
  slot->directory = options_.directory + "/" + DirectoryName(slot->name);
  Status status = Fill(*slot, recipe);
  if (status.ok()) return slot;
  Status removed = Remove(*slot);
  if (!removed.ok()) {
    LogError("pool: sandbox not removed", {{"slot", slot->name}, {"error", removed.ToString()}});
  }
  return status;
}

Status WarmPool::Fill(PoolSlot& slot, const runtime::StartArgs& recipe) {
  if (tools_.cgroups != nullptr) {
    // First, because the leaf is what a next worker process finds the rest by.
    slot.leaf = LeafOf(slot.name);
    RETURN_IF_ERROR(tools_.cgroups->Create(slot.leaf, kWaitingLimits));
  }
  ASSIGN_OR_RETURN(slot.network, tools_.network->Create(slot.name));
  const std::string state = slot.directory + "/" + kState;
  std::error_code error;
  std::filesystem::create_directories(state, error);
  if (error) return ErrnoStatus(error.value(), "make " + state);
  runtime::StartArgs args = recipe;
  args.sandbox_id = slot.name;
  args.state_dir = state;
  args.netns_path = slot.network->netns_path();
  args.cgroups = tools_.cgroups;
  args.cgroup_leaf = slot.leaf;
  if (tools_.cgroups != nullptr) args.cgroup_procs_files = tools_.cgroups->ProcsFiles(slot.leaf);
  args.prepare_network = [network = slot.network] { return network->Prepare(); };
  args.deadline = tools_.clock->Now() + options_.make_timeout;
  for (const torpor::v1::ContainerSpec& container : recipe.spec.containers()) {
    ASSIGN_OR_RETURN(OutputPipes pipes, OutputPipes::Make());
    args.stdio[container.name()] = {pipes.stdout_write.get(), pipes.stderr_write.get()};
    slot.outputs[container.name()] = std::move(pipes);
  }
  ASSIGN_OR_RETURN(slot.sandbox, tools_.runtime->Prepare(args));
  for (auto& [container, pipes] : slot.outputs) {
    pipes.stdout_write.Reset();
    pipes.stderr_write.Reset();
  }
  return slot.leaf.empty() ? OkStatus() : tools_.cgroups->Freeze(slot.leaf, true);
}

}  // namespace torpor::worker
