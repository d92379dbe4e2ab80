#include "language/grammar/trials.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/own_folder.h"
#include "language/grammar/llguidance.h"
#include "tactus/version.h"

namespace tactus::language {
namespace {

constexpr const char* kHelperName = "tactus-grammar";
constexpr int kTrialLookMs = 5;  // between two checks whether the caller has given up

Status Unavailable(const std::string& why) {
  return Status(StatusCode::kUnavailable,
                fmt::format("structured output tries rules in a separate process, {}, and {}", kHelperName, why));
}

Result<std::string> FindHelper() {
  const std::vector<std::string> paths = HelperPaths();
  for (const std::string& path : paths) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return Unavailable(
      fmt::format("it is not installed: run scripts/build.sh with the program's name, or name it with the environment "
                  "variable TACTUS_GRAMMAR_HELPER (looked for: {})",
                  fmt::join(paths, ", ")));
}

// A duplicate whose number collides with none of the helper's fixed descriptors.
Descriptor Above(const Descriptor& fd) {
  constexpr int kLeast = 16;
  return Descriptor(fcntl(fd.get(), F_DUPFD_CLOEXEC, kLeast));
}

// Actions and attributes of posix_spawn, freed by the destructor.
class SpawnOrders {
 public:
  SpawnOrders() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnOrders() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnOrders(const SpawnOrders&) = delete;
  SpawnOrders& operator=(const SpawnOrders&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// Returns the pid, or a negative errno. The process inherits only the standard streams and two descriptors, and none of
// the signals: a terminal's ^C is for the server.
pid_t Spawn(const std::string& program, const std::string& library, const Descriptor& control,
            const Descriptor& vocabulary) {
  SpawnOrders orders;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int error = posix_spawn_file_actions_addopen(&orders.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  error |= posix_spawn_file_actions_addopen(&orders.files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  error |= posix_spawn_file_actions_adddup2(&orders.files, control.get(), kTrialControlFd);
  error |= posix_spawn_file_actions_adddup2(&orders.files, vocabulary.get(), kTrialVocabularyFd);
  error |= posix_spawn_file_actions_addclosefrom_np(&orders.files, std::max(kTrialControlFd, kTrialVocabularyFd) + 1);
  error |= posix_spawnattr_setsigmask(&orders.attributes, &none);
  error |= posix_spawnattr_setsigdefault(&orders.attributes, &all);
  error |= posix_spawnattr_setpgroup(&orders.attributes, 0);
  error |= posix_spawnattr_setflags(&orders.attributes,
                                    POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  if (error != 0) return -ENOMEM;
  std::string own = program, file = library, version = Version(), server = std::to_string(getpid());
  char* const arguments[] = {own.data(), file.data(), version.data(), server.data(), nullptr};
  pid_t helper = -1;
  error = posix_spawn(&helper, program.c_str(), &orders.files, &orders.attributes, arguments, environ);
  return error != 0 ? -error : helper;
}

// Whether the other end has unread bytes.
bool HasUnread(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

// Reaps the process; kills it if it runs on for a second.
void WaitForEnd(pid_t helper) {
  constexpr int kLooks = 1000;
  for (int look = 0; look <= kLooks; ++look) {
    if (look == kLooks) kill(helper, SIGKILL);
    if (waitpid(helper, nullptr, look < kLooks ? WNOHANG : 0) != 0) return;  // it has ended, or was reaped elsewhere
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

std::vector<std::string> HelperPaths() {
  if (const char* given = std::getenv("TACTUS_GRAMMAR_HELPER"); given != nullptr && *given != '\0') return {given};
  std::vector<std::string> paths;
  if (const std::filesystem::path own = OwnFolder(); !own.empty()) {
    for (const char* place : {".", "../bin", "../../bin"})
      paths.push_back((own / place / kHelperName).lexically_normal().string());
  }
  return paths;
}

Trials::Trials(const Vocabulary& vocabulary, std::string library) : library_(std::move(library)), owner_(getpid()) {
  const std::string bytes = VocabularyBytes(vocabulary);
  Descriptor file(memfd_create("tactus-vocabulary", MFD_CLOEXEC));
  size_t done = 0;
  while (file.open() && done < bytes.size()) {
    const ssize_t count = write(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
  vocabulary_ = std::move(file);
}

Status Trials::Start() {
  const std::lock_guard lock(mutex_);
  return StartLocked();
}

Status Trials::StartLocked() {
  if (control_.open()) return Status();
  if (closed_ || getpid() != owner_) return Unavailable("this process has ended it");
  if (!vocabulary_.open()) return Unavailable("there was no memory for its vocabulary; restart the server");
  TACTUS_ASSIGN_OR_RETURN(const std::string program, FindHelper());
  TACTUS_ASSIGN_OR_RETURN(auto ends, MakePair());
  const Descriptor control = Above(ends.second), vocabulary = Above(vocabulary_);
  if (!control.open() || !vocabulary.open())
    return Status(StatusCode::kResourceExhausted, "no descriptor for the helper that tries rules; try again later");
  const pid_t helper = Spawn(program, library_, control, vocabulary);
  if (helper < 0)
    return Unavailable(fmt::format("'{}' cannot be started: {}", program, std::strerror(static_cast<int>(-helper))));
  helper_ = helper;
  control_ = std::move(ends.first);
  return Status();
}

void Trials::EndLocked() {
  if (!control_.open()) return;
  control_.Close();
  if (getpid() == owner_) WaitForEnd(helper_);
  helper_ = -1;
}

void Trials::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  EndLocked();
}

pid_t Trials::helper() const {
  const std::lock_guard lock(mutex_);
  return helper_;
}

Result<Trials::Answer> Trials::RunOnce(const TrialTask& task, int64_t* left_ms, const std::function<bool()>& given_up) {
  TACTUS_ASSIGN_OR_RETURN(auto ends, MakePair());
  const auto go_on = [&] {
    *left_ms -= kTrialLookMs;
    return *left_ms > 0 && !given_up();
  };
  pid_t helper = -1;
  for (Sent sent = Sent::kFull; sent != Sent::kYes;) {
    {
      const std::lock_guard lock(mutex_);
      TACTUS_RETURN_IF_ERROR(StartLocked());
      helper = helper_;
      sent = SendDescriptor(control_.get(), ends.second);
      if (sent == Sent::kGone) {
        EndLocked();
        return Answer{.died = true, .verdict = {}};
      }
    }
    // Without the mutex: a stuck helper would block all its callers and the server's shutdown.
    if (sent == Sent::kYes) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(kTrialLookMs));
    if (go_on()) continue;
    return Status(StatusCode::kResourceExhausted,
                  "the process that tries rules accepts no more at the moment; try again later");
  }
  ends.second.Close();
  const int end = ends.first.get();
  Answer answer;
  // If the task is not accepted, a verdict may give the reason.
  (void)WriteTask(end, task, kTrialLookMs, go_on);
  bool waits = *left_ms > 0 && !given_up();
  while (waits && !WaitToRead(end, kTrialLookMs)) waits = go_on();
  if (!waits) {
    if (*left_ms <= 0 && HasUnread(end)) {  // not tried at all: nothing is known about the rule
      return Status(StatusCode::kResourceExhausted, "the process that tries rules does not answer; try again later");
    }
    answer.verdict.end = TrialVerdict::End::kTooLong;
  } else if (!ReadVerdict(end, &answer.verdict, static_cast<int>(*left_ms))) {
    const std::lock_guard lock(mutex_);
    answer.died = helper_ != helper || !control_.open() || IsGone(control_.get());
    if (answer.died && helper_ == helper) EndLocked();
    // The other trials continue.
    answer.verdict.end = TrialVerdict::End::kNoProcess;
    answer.verdict.said = "its trial ended without a verdict";
  }
  return answer;
}

Result<TrialVerdict> Trials::Run(const TrialTask& task, int64_t timeout_ms, const std::function<bool()>& given_up) {
  for (int time = 0; time < 2; ++time) {
    TACTUS_ASSIGN_OR_RETURN(Answer answer, RunOnce(task, &timeout_ms, given_up));
    if (answer.died) continue;
    if (answer.verdict.end == TrialVerdict::End::kNotStarted) return Unavailable(answer.verdict.said);
    if (answer.verdict.end == TrialVerdict::End::kNoProcess) {
      return Status(
          StatusCode::kResourceExhausted,
          fmt::format("no memory, thread or process to try a rule with ({}); try again later", answer.verdict.said));
    }
    return std::move(answer.verdict);
  }
  return Unavailable("it ends as soon as it starts; check the server's log and its installation");
}

}  // namespace tactus::language
