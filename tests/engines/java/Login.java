package tidegauge;

/** The Kafka client properties that a plan gives, as JSON. */
public final class Login {
    public static void main(String[] arguments) throws Exception {
        System.out.println(Plan.JSON.writeValueAsString(Plan.of(arguments[0]).kafka()));
    }
}
