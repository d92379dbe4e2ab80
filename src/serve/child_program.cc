#include "serve/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/on_exit.h"

namespace tactus::serve {
namespace {

constexpr size_t kMostOutput = size_t{8} << 20;
constexpr int kPollMs = 100;
constexpr int kNice = 10;  // as service threads (base/thread_role.h)

// A descriptor that closes itself.
class OwnFd {
 public:
  OwnFd() = default;
  ~OwnFd() { Close(); }
  OwnFd(const OwnFd&) = delete;
  OwnFd& operator=(const OwnFd&) = delete;
  int get() const { return fd_; }
  // Takes it, under a number that no standard stream of a child has.
  void Set(int fd) {
    Close();
    if (fd < 0) return;
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    close(fd);
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  OwnFd read, write;
  bool Open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read.Set(ends[0]);
    write.Set(ends[1]);
    return read.get() >= 0 && write.get() >= 0;
  }
};

Status NoChild(const char* what) {
  return Status(StatusCode::kResourceExhausted,
                fmt::format("no process for the simulation: {}: {}", what, std::strerror(errno)));
}

// A file in memory with the text.
bool Fill(OwnFd* file, const std::string& text) {
  file->Set(memfd_create("tactus-load", MFD_CLOEXEC));
  if (file->get() < 0) return false;
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(file->get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return lseek(file->get(), 0, SEEK_SET) == 0;
}

// Starts the child. posix_spawn copies no page tables, so that a server of many gigabytes does not stall.
int Spawn(const ChildRun& run, int input, int out, int err, pid_t* child) {
  std::vector<std::string> words = {run.program};
  words.insert(words.end(), run.args.begin(), run.args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char* const no_environment[] = {nullptr};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  int error = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  error |= posix_spawn_file_actions_adddup2(&files, out, 1);
  error |= posix_spawn_file_actions_adddup2(&files, err, 2);
  error |= posix_spawn_file_actions_adddup2(&files, input, 3);
  // Sockets of the server and its clients among them: a child that keeps them open keeps connections and the port open.
  error |= posix_spawn_file_actions_addclosefrom_np(&files, 4);
  sigset_t none, pipe;
  sigemptyset(&none);
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  error |= posix_spawnattr_setsigmask(&attributes, &none);
  error |= posix_spawnattr_setsigdefault(&attributes, &pipe);
  error |= posix_spawnattr_setpgroup(&attributes, 0);
  error |=
      posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  error =
      error != 0 ? ENOMEM : posix_spawn(child, run.program.c_str(), &files, &attributes, argv.data(), no_environment);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

void Limit(pid_t child, const ChildRun& run) {
  const auto bytes = static_cast<rlim_t>(run.memory_bytes);
  const auto seconds = static_cast<rlim_t>(run.cpu_s);
  const rlimit memory{bytes, bytes}, cpu{seconds, seconds + 1}, core{0, 0};
  setpriority(PRIO_PROCESS, static_cast<id_t>(child), kNice);
  prlimit(child, RLIMIT_AS, &memory, nullptr);
  prlimit(child, RLIMIT_CPU, &cpu, nullptr);
  prlimit(child, RLIMIT_CORE, &core, nullptr);
}

// Appends what is there; false: the other end is closed.
bool Drain(int fd, std::string* text) {
  std::array<char, 16384> part;
  const ssize_t got = read(fd, part.data(), part.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (text->size() < kMostOutput) text->append(part.data(), static_cast<size_t>(got));
  return got > 0;
}

std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace

Result<std::string> RunChild(const ChildRun& run, Clock& clock, const std::function<bool()>& stop) {
  OwnFd input;
  Pipe out, err;
  if (!Fill(&input, run.input)) return NoChild("memory");
  if (!out.Open() || !err.Open()) return NoChild("pipe");
  pid_t child = 0;
  if (const int error = Spawn(run, input.get(), out.write.get(), err.write.get(), &child); error != 0) {
    if (error == ENOENT) return Status(StatusCode::kUnavailable, fmt::format("{} is missing", run.program));
    errno = error;
    return NoChild(run.program.c_str());
  }
  const auto reap = [child](int signal) {
    if (signal != 0) kill(child, signal);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  };
  OnExit abandoned([&reap] { reap(SIGKILL); });  // after an exception
  Limit(child, run);
  out.write.Close();
  err.write.Close();

  const TimeNs end_ns = clock.NowNs() + run.limit_ns;
  std::string printed, said;
  Status ended;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    if (clock.NowNs() >= end_ns) {
      ended = Status(StatusCode::kDeadlineExceeded,
                     fmt::format("the simulation took more than {} s and was ended; ask about fewer requests",
                                 run.limit_ns / kSecond));
    } else if (stop()) {
      ended = Status(StatusCode::kCancelled, "the simulation was stopped");
    }
    if (!ended.ok()) break;
    std::array<pollfd, 2> fds{pollfd{out_open ? out.read.get() : -1, POLLIN, 0},
                              pollfd{err_open ? err.read.get() : -1, POLLIN, 0}};
    if (poll(fds.data(), fds.size(), kPollMs) <= 0) continue;
    if (fds[0].revents != 0) out_open = Drain(out.read.get(), &printed);
    if (fds[1].revents != 0) err_open = Drain(err.read.get(), &said);
  }
  abandoned.Cancel();
  const int status = reap(ended.ok() ? 0 : SIGKILL);
  if (!ended.ok()) return ended;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return printed;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && run.negative_result && !printed.empty()) return printed;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) {
    return Status(StatusCode::kDeadlineExceeded,
                  fmt::format("the simulation took more than {} s of CPU time; ask about fewer requests", run.cpu_s));
  }
  const std::string line = LastLine(std::move(said));
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if ((code == 1 || code == 2) && !line.empty() && line.starts_with(run.refusal)) return InvalidArgument(line);
  std::string why = WIFSIGNALED(status) ? fmt::format("the simulation was ended by signal {}", WTERMSIG(status))
                                        : fmt::format("the simulation ended with status {}", code);
  if (!WIFSIGNALED(status) && !line.empty()) why += ": " + line;
  return Status(StatusCode::kInternal, std::move(why));
}

}  // namespace tactus::serve
