import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;

/** Turns a PEM bundle into a trust store that Java reads. Run by mvn.sh: `java TrustStore.java bundle.pem out.p12`. */
public class TrustStore {
  public static void main(String[] args) throws Exception {
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    try (FileInputStream pem = new FileInputStream(args[0])) {
      int number = 0;
      for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
        store.setCertificateEntry("ca-" + number++, certificate);
      }
    }
    try (FileOutputStream out = new FileOutputStream(args[1])) {
      store.store(out, "changeit".toCharArray());
    }
  }
}
