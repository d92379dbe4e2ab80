// SHA-256 and HMAC by published vectors (FIPS 180-4, RFC 4231), and the signatures of a fleet.
#include "base/fleet_secret.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/sha256.h"

namespace tactus {
namespace {

std::string Hex(const Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

TEST(Sha256, MatchesPublishedVectors) {
  EXPECT_EQ(Hex(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, HmacMatchesPublishedVectors) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(FleetSecret, KeysFollowFromTheSecretAndDiffer) {
  const FleetKeys keys = FleetKeysOf("a secret of the fleet");
  EXPECT_EQ(keys.blocks, FleetKeysOf("a secret of the fleet").blocks);
  EXPECT_NE(keys.blocks, keys.requests);
  EXPECT_NE(keys.blocks, FleetKeysOf("a secret of the fleeT").blocks);
}

TEST(FleetSecret, HexRoundTrips) {
  const Hash128 bits{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(HexOf(bits), "fedcba98765432100123456789abcdef");
  EXPECT_EQ(*BitsOf(HexOf(bits)), bits);
  for (const char* bad : {"", "00", "fedcba98765432100123456789abcdeg", "fedcba98765432100123456789abcdef0"})
    EXPECT_FALSE(BitsOf(bad).ok()) << bad;
}

// Like a server: checks the head, then the body.
Result<Hash128> Check(FleetGuard& guard, const FleetRequest& request, const std::string* header, int64_t now_s) {
  TACTUS_RETURN_IF_ERROR(guard.CheckHead(request.method, request.path, header, now_s));
  return guard.CheckBody(header, request.body);
}

TEST(FleetSecret, IsReadOnlyFromAFileOfItsOwner) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "fleet_secret";
  const auto reads = [&](const std::string& text, mode_t mode) {
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    const auto secret = ReadFleetSecret(path);
    return secret.ok() ? *secret : secret.status().message();
  };
  const std::string secret(kShortestFleetSecret, 's');
  EXPECT_EQ(reads(secret + "\r\n", 0600), secret);
  EXPECT_EQ(reads(std::string(kLongestFleetSecret, 'l'), 0640), std::string(kLongestFleetSecret, 'l'));
  EXPECT_NE(reads(secret, 0604).find("every user of this machine may open it (mode 0604)"), std::string::npos);
  EXPECT_NE(reads(secret.substr(1), 0600).find(fmt::format("only {} bytes", secret.size() - 1)), std::string::npos);
  EXPECT_NE(reads(std::string(kLongestFleetSecret + 1, 'l'), 0600).find("more than"), std::string::npos);
  EXPECT_NE(ReadFleetSecret(testing::TempDir()).status().message().find("not a regular file"), std::string::npos);
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);  // as under a service manager without standard input: the file then gets descriptor 0
  EXPECT_EQ(reads(secret, 0600), secret);
  dup2(input, STDIN_FILENO);
  close(input);
  std::filesystem::remove(path);
  EXPECT_NE(ReadFleetSecret(path).status().message().find("No such file"), std::string::npos);
}

TEST(FleetGuard, AcceptsEachGenuineRequestOnce) {
  const FleetKeys keys = FleetKeysOf("a secret of the fleet");
  FleetGuard guard(keys, 900);
  const FleetRequest request{"POST", "/fleet/import", "body"};
  const std::string header = SignFleetRequest(keys, request, 1000, {1, 2});
  const auto member = Check(guard, request, &header, 1010);
  ASSERT_TRUE(member.ok()) << member.status().ToString();
  EXPECT_EQ(*member, (Hash128{1, 2}));
  EXPECT_FALSE(guard.CheckHead("POST", "/fleet/import", &header, 1010).ok()) << "the same again";
  EXPECT_FALSE(guard.CheckHead("POST", "/fleet/import", &header, 1060).ok())
      << "the same again, at the last possible time";
}

TEST(FleetGuard, ChangesToAHeadAreNoticedBeforeItsBody) {
  const FleetKeys keys = FleetKeysOf("a secret of the fleet");
  FleetGuard guard(keys, 900);
  const FleetRequest request{"POST", "/fleet/import", "body"};
  const std::string header = SignFleetRequest(keys, request, 1000, {1, 2});
  const auto refused = [&](std::string_view method, std::string_view path, std::string h, int64_t now_s = 1000) {
    return guard.CheckHead(method, path, &h, now_s).message();
  };
  EXPECT_NE(refused("PUT", "/fleet/import", header), "");
  EXPECT_NE(refused("POST", "/fleet/imports", header), "");
  EXPECT_NE(refused("POST/fleet", "/import", header), "");
  std::string later = header;
  later.replace(later.find("1000"), 4, "1001");
  EXPECT_NE(refused("POST", "/fleet/import", later), "");
  const std::string other_body = SignFleetRequest(keys, {"POST", "/fleet/import", "Body"}, 1000, {1, 2});
  const size_t end = header.size();  // a digest, a space, a MAC
  const std::string mixed = header.substr(0, end - 65) + other_body.substr(end - 65, 32) + header.substr(end - 33);
  EXPECT_NE(refused("POST", "/fleet/import", mixed), "") << "the digest of another body";
  const std::string stranger = SignFleetRequest(FleetKeysOf("another secret of a fleet"), request, 1000, {1, 2});
  EXPECT_NE(refused("POST", "/fleet/import", stranger), "");
  EXPECT_NE(refused("POST", "/fleet/import", header, 1061).find("61 s away"), std::string::npos);
  EXPECT_NE(refused("POST", "/fleet/import", header, 939).find("61 s away"), std::string::npos);
  for (const char* bad : {"", "v1", "v2 1000 00 00 00", "v1 1000 x y z", "v1 1000 00 00", "v1 soon 00 00 00"})
    EXPECT_NE(refused("POST", "/fleet/import", bad), "") << bad;
  EXPECT_NE(guard.CheckHead("POST", "/fleet/import", nullptr, 1000).message().find("missing"), std::string::npos);
  EXPECT_EQ(refused("POST", "/fleet/import", header), "") << "the genuine request was refused because of forged ones";
}

// Requests that the previous process accepted could be replayed.
TEST(FleetGuard, RequestsSignedBeforeTheProcessBeganAreRefused) {
  const FleetKeys keys = FleetKeysOf("a secret of the fleet");
  FleetGuard guard(keys, 1000);
  const auto check = [&](int64_t signed_s, int64_t now_s) {
    const FleetRequest request{"POST", "/fleet/migrate", "body"};
    const std::string header = SignFleetRequest(keys, request, signed_s, {static_cast<uint64_t>(signed_s), 0});
    return guard.CheckHead(request.method, request.path, &header, now_s).message();
  };
  EXPECT_NE(check(999, 1000).find("signed 1 s before this process began"), std::string::npos);
  EXPECT_NE(check(950, 1005), "");
  EXPECT_EQ(check(1000, 1000), "");
  EXPECT_EQ(check(1005, 1010), "");
}

TEST(FleetGuard, ABodyMustBeTheSignedOne) {
  const FleetKeys keys = FleetKeysOf("a secret of the fleet");
  FleetGuard guard(keys, 900);
  const std::string header = SignFleetRequest(keys, {"POST", "/fleet/import", "body"}, 1000, {1, 2});
  for (const char* other : {"Body", "", "body "}) EXPECT_FALSE(guard.CheckBody(&header, other).ok()) << other;
  EXPECT_TRUE(guard.CheckBody(&header, "body").ok());
  const std::string malformed = "v1";
  EXPECT_FALSE(guard.CheckBody(&malformed, "body").ok());
  EXPECT_FALSE(guard.CheckBody(nullptr, "body").ok());
}

TEST(FleetSecret, AnAnswerIsValidOnlyForItsRequest) {
  const FleetKeys keys = FleetKeysOf("a secret of the fleet");
  const std::string header = SignFleetAnswer(keys, {3, 4}, 200, "yes");
  EXPECT_TRUE(CheckFleetAnswer(keys, {3, 4}, 200, "yes", &header).ok());
  EXPECT_FALSE(CheckFleetAnswer(keys, {3, 5}, 200, "yes", &header).ok());
  EXPECT_FALSE(CheckFleetAnswer(keys, {3, 4}, 201, "yes", &header).ok());
  EXPECT_FALSE(CheckFleetAnswer(keys, {3, 4}, 200, "no", &header).ok());
  EXPECT_FALSE(CheckFleetAnswer(keys, {3, 4}, 200, "yes", nullptr).ok());
  const std::string malformed = "v1";
  EXPECT_FALSE(CheckFleetAnswer(keys, {3, 4}, 200, "yes", &malformed).ok());
}

}  // namespace
}  // namespace tactus
