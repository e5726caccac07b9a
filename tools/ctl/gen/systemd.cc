#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/ctl/gen/arguments.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/quote.h"

namespace divvy::gen {
namespace {

// As divvyctl launch: more restarts than this within 10 minutes are a crash loop.
constexpr int kBurst = 5, kIntervalSeconds = 600;

// "digits-ps@": the template of a role whose tasks have an index.
std::string UnitOf(const Job& job, const RolePlan& role) {
  return absl::StrCat(job.name, "-", role.name(), role.is_single() ? "" : "@");
}
// "digits-ps@0": the unit of a task.
std::string InstanceOf(const Job& job, const RolePlan& role, const Task& task) {
  return absl::StrCat(UnitOf(job, role), role.is_single() ? "" : absl::StrCat(task.index));
}
// The index, as the unit's file writes it.
std::string IndexOf(const RolePlan& role) { return role.is_single() ? "0" : "%i"; }
std::string Folder(const Job& job) { return absl::StrCat("/etc/", job.name); }

// The files of LoadCredential are in $CREDENTIALS_DIRECTORY (systemd 247; its specifier %d came
// with 250), and belong to the service. So the keys stay root's.
std::string CommandLine(const Job& job, const RolePlan& role) {
  Place place;
  place.http_address = "0.0.0.0:${HTTP_PORT}";
  place.tls_cert = "${CREDENTIALS_DIRECTORY}/tls.pem";
  place.tls_key = "${CREDENTIALS_DIRECTORY}/tls.key";
  place.tls_ca = "${CREDENTIALS_DIRECTORY}/ca.pem";
  place.state_dir = absl::StrCat("%S/", job.name);
  std::vector<std::string> words = {UnitWord(job.program)};
  for (const std::string& flag : PlaceFlags(job, role, place)) words.push_back(flag);
  for (const std::string& flag : role.flags) words.push_back(UnitWord(flag));
  return absl::StrJoin(words, " \\\n  ");
}

std::string CredentialsOf(const Job& job, const RolePlan& role) {
  if (!role.is_in_cluster()) return "";
  const std::string directory = absl::StrCat(*job.options.tls_dir, "/");
  const std::string own = absl::StrCat(directory, role.name(), "-", IndexOf(role));
  return absl::StrCat("LoadCredential=tls.pem:", own, ".pem\nLoadCredential=tls.key:", own,
                      ".key\nLoadCredential=ca.pem:", directory, "ca.pem\n");
}

std::string DirectoriesOf(const Job& job, const RolePlan& role) {
  std::string text = "ProtectSystem=strict\nPrivateTmp=yes\n";
  if (role.role == Role::kChief)
    absl::StrAppend(&text, "StateDirectory=", job.name, "\nStateDirectoryMode=0700\n");
  if (role.is_in_cluster() && WritesCheckpoints(job, role))
    absl::StrAppend(&text, "ReadWritePaths=", job.checkpoint_dir, "\n");
  if (role.is_single() && !job.tensorboard_dir.empty())
    absl::StrAppend(&text, "ReadWritePaths=", job.tensorboard_dir, "\n");
  // Libraries of GPUs make code at run time.
  if (role.gpus == 0) absl::StrAppend(&text, "MemoryDenyWriteExecute=yes\n");
  return text;
}

// 130 and 143: the task has drained, as it was asked to.
std::string RestartRules() {
  return absl::StrCat("Restart=on-failure\nRestartSec=1\nRestartPreventExitStatus=",
                      absl::StrJoin(PermanentCodes(), " "), "\nSuccessExitStatus=130 143\n");
}

std::string Unit(const Job& job, const RolePlan& role) {
  return absl::StrCat(
      "[Unit]\nDescription=Divvy job ", job.name, ": ", role.name(), " ", IndexOf(role),
      "\nAfter=network-online.target\nWants=network-online.target\n",
      "StartLimitIntervalSec=", kIntervalSeconds, "\nStartLimitBurst=", kBurst,
      "\n\n[Service]\nType=notify\nUser=divvy\nGroup=divvy\nEnvironmentFile=", Folder(job), "/",
      role.name(), "-", IndexOf(role), ".env\n", CredentialsOf(job, role),
      "ExecStart=", CommandLine(job, role), "\n", RestartRules(), "TimeoutStopSec=", kGraceSeconds,
      "\nMemoryMax=", role.memory_bytes, "\nLimitNOFILE=65536\n", DirectoriesOf(job, role),
      "ProtectHome=yes\nNoNewPrivileges=yes\nCapabilityBoundingSet=\n",
      "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX\nLockPersonality=yes\n",
      "ProtectKernelTunables=yes\nProtectControlGroups=yes\nUMask=0027\n",
      "\n[Install]\nWantedBy=multi-user.target\n");
}

// In single quotes: JSON has no others.
std::string Environment(const Job& job, const Task& task) {
  const std::string config =
      absl::StrCat("TF_CONFIG='", TfConfigOf(job, task.role, task.index), "'\n");
  if (task.role == Role::kEvaluator) return config;
  return absl::StrCat(config, "HTTP_PORT=", PortOf(job, task, kHttpPort), "\n");
}

std::string Start(const std::string& name) { return absl::StrCat("# file: ", name, "\n"); }

// A line for each host: "#   a: systemctl enable --now digits-chief digits-ps@1".
std::string UnitsOfHosts(const Job& job) {
  std::vector<std::string> hosts;
  std::map<std::string, std::string> units;
  for (const RolePlan& role : job.roles) {
    for (int i = 0; i < role.count; ++i) {
      const Task task{role.role, i};
      const std::string host = HostOf(job, task);
      if (units.count(host) == 0) hosts.push_back(host);
      absl::StrAppend(&units[host], " ", InstanceOf(job, role, task));
    }
  }
  return absl::StrJoin(hosts, "", [&units](std::string* out, const std::string& host) {
    absl::StrAppend(out, "#   ", host, ": systemctl enable --now", units[host], "\n");
  });
}

std::string UnitsHead(const Job& job) {
  return absl::StrCat(
      "# Made by divvyctl gen systemd. To cut it into its files: awk '/^# file: /{f=$3} {print "
      ">f}'\n"
      "# On each host: the program as ",
      job.program,
      "; a system user divvy; the units in\n"
      "# /etc/systemd/system; the tasks' .env files in ",
      Folder(job),
      "; the certificates of these\n"
      "# tasks and ca.pem in ",
      *job.options.tls_dir, ", which only root needs to read",
      job.checkpoint_dir.empty()
          ? std::string()
          : absl::StrCat("; and, for the chief\n# and every ps, the shared directory ",
                         job.checkpoint_dir, ", which divvy may write to"),
      ".\n# Then, on each host:\n", UnitsOfHosts(job),
      "# To end the job, stop the chief first: it saves a checkpoint. A renewed certificate "
      "reaches "
      "a\n# task when it starts. systemd 247 or later.\n");
}

}  // namespace

std::string SystemdFiles(const Job& job) {
  std::string text;
  for (const RolePlan& role : job.roles)
    absl::StrAppend(&text, Start(UnitOf(job, role) + ".service"),
                    text.empty() ? UnitsHead(job) : "", Unit(job, role));
  for (const Task& task : TasksOf(job))
    absl::StrAppend(&text, Start(task.name() + ".env"), Environment(job, task));
  return text;
}

}  // namespace divvy::gen
